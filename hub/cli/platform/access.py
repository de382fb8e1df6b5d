"""[edge] ``hub access``: who may do what, explained; hashes of new passwords and tokens; grants in Kafka."""

from __future__ import annotations

import secrets
import sys
from ipaddress import ip_address
from typing import Annotated

import typer

from hub.access.access_yaml import ACCESS_FILE, AccessFile, load_access
from hub.access.decide import ANONYMOUS, Grant, Principal, decide, grant_text
from hub.access.secrets import SALT_BYTES, TOKEN_BYTES, hash_of_password, hash_of_token, token_of
from hub.caller import HUB, Action, Kind, Resource
from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.governing import access_requests
from hub.cli.platform import access_kafka, access_log, access_people
from hub.cli.platform.access_kafka import PruneOption
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.config import Settings
from hub.errors import CallerError, ConfigError, NotFound, did_you_mean
from hub.times import epoch_ms

LEAST_PASSWORD = 10

app = typer.Typer(
    help="Access control: access.yaml in the project folder (docs/how-to/control-access.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub access ls; hub access check alice read shop.orders; hub access hash --token",
)

app.add_typer(access_people.tokens, name="token")
app.add_typer(access_people.sessions, name="session")
app.add_typer(access_log.app, name="audit")
app.add_typer(access_requests.requests, name="requests")
app.command("request")(access_requests.request)


@app.command("hash")
def make_hash(
    token: Annotated[bool, typer.Option("--token", help="Make a new token for a service instead.")] = False,
) -> None:
    """Print the line for access.yaml: of a password (asked for, or the first line of standard input), or of a
    new token.

    Example: hub access hash --token
    """
    if token:
        made = token_of(secrets.token_bytes(TOKEN_BYTES))
        note("The token, shown only once. Its service sends it as HUB_TOKEN, or as a bearer token:")
        print(made)
        note("The line for access.yaml, below `tokens: NAME:`")
        print(f'token: "{hash_of_token(made)}"')
        return
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < LEAST_PASSWORD:
        raise CallerError(
            f"the password has {len(password)} characters, {LEAST_PASSWORD} are the least",
            hint="a sequence of words is easy to remember",
            code="HUB-1716",
        )
    note("The line for access.yaml, below `users: NAME:`")
    print(f'password: "{hash_of_password(password, secrets.token_bytes(SALT_BYTES))}"')


@app.command()
def check(
    user: Annotated[str, typer.Argument(help="A user or token of access.yaml; anonymous: not signed in.")],
    action: Annotated[Action, typer.Argument(help="The action to check.")],
    resource: Annotated[
        str,
        typer.Argument(help="A topic (shop.orders), view:NAME, subject:NAME, or hub (the hub itself)."),
    ],
    output: OutputOption = Output.table,
) -> None:
    """Print whether a user or token may do an action, and why. Exit code 1: no.

    Example: hub access check alice read shop.orders
    """
    file = _file()
    policy = file.policy(epoch_ms())
    decision = decide(policy, _principal(file, user), action, resource_of(resource))
    show(
        [{"allowed": decision.allowed, "why": decision.reason, "how": decision.hint or ""}],
        output,
    )
    if not decision.allowed:
        raise typer.Exit(1)


@app.command()
def explain(
    user: Annotated[str, typer.Argument(help="A user or token of access.yaml; anonymous: not signed in.")],
    resource: Annotated[str, typer.Argument(help="A topic (shop.orders), or view:NAME.")],
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", help="A group that the user has at the identity provider. May stand several times"
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Print how a user sees a topic or view, field by field, with the rule of `masks` for each.

    Asks the running server, which knows the schemas' tags and what views are made of.
    Example: hub access explain ana view:customers
    """
    what = resource_of(resource)
    if what.kind not in (Kind.topic, Kind.view):
        raise CallerError(
            f"{what} has no rows", hint="name a topic (shop.orders) or view:NAME", code="HUB-1718"
        )
    parameters = [("user", user), (str(what.kind), what.name), *(("group", each) for each in group or ())]
    found = http.get("/api/access/explain", parameters)
    show(found["sees"], output)


@app.command("ls")
def ls(output: OutputOption = Output.table) -> None:
    """List users, tokens and groups with their grants.

    Example: hub access ls -o json
    """
    file = _file()
    policy = file.policy(epoch_ms())
    rows = []
    everybody = [*(("user", name) for name in file.users), *(("token", name) for name in file.tokens)]
    for kind, name in everybody:
        who = _principal(file, name)
        own = [grant for source, grant in policy.grants(who) if source != "anonymous"]
        secret = (
            "token" if kind == "token" else "password" if file.users[name].password else "the proxy's header"
        )
        rows.append(_row(kind, name, sorted(who.groups), own, secret))
    for name, grants in policy.by_group.items():
        members = sum(name in each.groups for each in file.users.values())
        members += sum(name in each.groups for each in file.tokens.values())
        rows.append(_row("group", name, [], grants, f"{members} members"))
    rows.append(_row("anonymous", "", [], policy.anonymous, ""))
    show(rows, output)


@app.command()
def plan(prune: PruneOption = None, output: OutputOption = Output.table) -> None:
    """Print the access rules (ACLs) and client quotas of Kafka that `apply` would change.

    Exit code 0: none. 2: some. Example: hub access plan --prune former-user
    """
    access_kafka.plan(_file(), prune, output)


@app.command()
def apply(prune: PruneOption = None, output: OutputOption = Output.table) -> None:
    """Make the access rules of Kafka like the grants of access.yaml, so that direct clients get the server's
    answer, and its client quotas like the bytes quotas.

    Users and tokens are Kafka's users of the same name. Rules that deny, of one host, of the cluster, of the
    hub itself and of users that access.yaml does not name stay.
    Example: hub access apply
    """
    access_kafka.apply(_file(), prune, output)


@app.command()
def drift(output: OutputOption = Output.table) -> None:
    """Print what differs between access.yaml and Kafka's access rules and client quotas.

    Exit code 0: nothing. 2: something. Example: hub access drift -o json
    """
    access_kafka.drift(_file(), output)


@app.command()
def usage(output: OutputOption = Output.table) -> None:
    """Print use against the quotas of access.yaml, by principal and tenant, with refused requests.

    Of one server since its start; `last hour` counts the last 55 to 60 minutes.
    Example: hub access usage -o json
    """
    access_people.usage(output)


def _row(
    kind: str, name: str, groups: list[str], grants: tuple[Grant, ...] | list[Grant], how: str
) -> dict[str, object]:
    granted = "; ".join(f"{each.role} over {grant_text(each)}" for each in grants)
    return {
        "kind": kind,
        "name": name,
        "groups": ", ".join(groups),
        "signs in by": how,
        "may": granted or "nothing",
    }


def resource_of(text: str) -> Resource:
    """Parse a resource name of the command line. Raises CallerError.

    >>> str(resource_of("view:customer_360")), str(resource_of("hub")), str(resource_of("shop.orders"))
    ('view "customer_360"', 'the hub', 'topic "shop.orders"')
    """
    if text == "hub":
        return HUB
    kind, colon, name = text.partition(":")
    if not colon:
        return Resource(Kind.topic, text)
    if kind not in ("topic", "view", "subject") or not name:
        raise CallerError(
            f'"{text[:100]}" is nothing that is granted',
            hint="write shop.orders, view:customer_360, subject:shop.orders-value or hub",
            code="HUB-1718",
        )
    return Resource(Kind(kind), name)


def _file() -> AccessFile:
    path = load_settings().project / ACCESS_FILE
    if not path.exists():
        raise NotFound(
            f'"{path}" does not exist: everybody who reaches the server may do everything',
            hint="docs/how-to/control-access.md shows one",
            code="HUB-1713",
        )
    return load_access(path)


def _principal(file: AccessFile, name: str) -> Principal:
    if name == "anonymous":
        return ANONYMOUS
    if name in file.users:
        return Principal(name, "user", frozenset(file.users[name].groups))
    if name in file.tokens:
        return Principal(name, "token", frozenset(file.tokens[name].groups))
    raise NotFound(
        f'user or token "{name[:100]}" does not exist',
        hint=did_you_mean(name, [*file.users, *file.tokens], "hub access ls lists them"),
        code="HUB-1714",
    )


def check_closed(settings: Settings) -> None:
    """Raise ConfigError (HUB-1720) if other machines would reach the server without signing in, unless the
    setting ``open_to_everybody`` allows it.
    """
    if open_to_others(settings) and not settings.open_to_everybody:
        raise ConfigError(
            f"everybody who reaches {_reached(settings)} could do everything: "
            f"{settings.project / ACCESS_FILE} does not exist",
            hint="write it (docs/tutorials/closed-in-ten-minutes.md), set admin_token, bind to this machine "
            "alone (http_host: 127.0.0.1), or say a second time that it is meant: open_to_everybody: true",
            code="HUB-1720",
        )


def _reached(settings: Settings) -> str:
    if settings.https is not None and not _is_reached(settings.http_host):
        return f"{settings.https.host}:{settings.https.port}"
    return f"{settings.http_host}:{settings.http_port}"


def open_to_others(settings: Settings) -> bool:
    """Return whether other machines reach the server without signing in."""
    if settings.require_access or settings.admin_token or (settings.project / ACCESS_FILE).exists():
        return False
    hosts = [settings.http_host, *([settings.https.host] if settings.https is not None else [])]
    return any(_is_reached(each) for each in hosts)


def _is_reached(host: str) -> bool:
    """Return whether other machines reach a server that is bound to this host."""
    if host == "localhost":
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True
