"""[edge] ``hub schema plan``, ``apply`` and ``check``:
a folder of schemas against the registry, a file or a revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.audited import planned
from hub.cli.context import load_settings
from hub.cli.schema.folder_output import Annotations, _head, _places, show_changes, show_checked
from hub.cli.schema.impact import topic_of, touched
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.terminal.progress import counted
from hub.config import Settings
from hub.errors import CallerError, ConfigError, HubError, NotFound, PeerError

if TYPE_CHECKING:
    from hub.schema_registry.client.remote import RemoteRegistry
    from hub.schema_registry.folder.files import Folder
    from hub.schema_registry.folder.plan import FolderItem, FolderPlan
    from hub.schema_registry.registry.rulebook import Rulebook
    from hub.schema_registry.registry.snapshot import ParsedSchema, RegistryState


FolderArgument = Annotated[Path | None, typer.Argument(help="Default: schemas/ of the project")]
DataOption = Annotated[
    bool, typer.Option("--data", help="Also read the topics' stored events with the new schemas")
]
SampleOption = Annotated[
    int, typer.Option(min=1, max=10_000_000, help="With --data: number of the latest events per partition")
]
ReadersOption = Annotated[
    bool, typer.Option(help="Ask Kafka which consumer groups read the topics that change")
]
AllOption = Annotated[bool, typer.Option("--all", help="With --data: every stored event")]


def plan(
    folder: FolderArgument = None,
    data: DataOption = False,
    sample: SampleOption = 200,
    every: AllOption = False,
    readers: ReadersOption = True,
    output: OutputOption = Output.table,
) -> None:
    """Show what `apply` would register, refusals with reasons, views and saved queries that would break,
    and consumer groups that read the topics. Changes nothing.

    Exit code 0: nothing to do; 2: changes; 1: something is refused. Example: hub schema plan schemas --data
    """
    settings = load_settings()
    made = _registered(settings, folder, data, None if every else sample)
    show_changes(made, touched(settings.project, made, settings if readers else None), output)
    raise typer.Exit(made.exit_code)


def apply(
    folder: FolderArgument = None, readers: ReadersOption = True, output: OutputOption = Output.table
) -> None:
    """Bring the registry to the state of the folder: register new and changed schemas, set levels. Deletes
    nothing.

    Referenced schemas go first. The first failure ends it; the next apply does the rest. While another
    apply is in progress on the hub's cluster, this one is refused.
    Example: hub schema apply schemas
    """
    from hub.schema_registry.folder.apply import apply as carry_out

    settings = load_settings()
    done: list[str] = []
    with _apply_lock(settings) as check, _registry(settings) as registry:
        made = _online(settings, folder, registry)
        for subject, each in touched(settings.project, made, settings if readers else None).items():
            for line in each.lines():
                note(f"! {subject}: {line}")
        with counted("Registering") as progress:

            def report(item: FolderItem) -> None:
                done.append(item.subject)
                progress(len(done), len(made.steps))
                note(f"[{len(done)}/{len(made.steps)}] {_head(item)}")
                check()

            try:
                check()
                planned([_head(item) for item in made.steps])
                carry_out(made, registry, report)
            except HubError:
                if done:
                    note(f"{len(done)} of {len(made.steps)} are done.")
                raise
    if output is Output.json:
        show_one({"done": done}, output)
    note(f"{len(done)} changed." if done else "Nothing to change.")


_LOCK_LOOK_S = 10.0


@contextmanager
def _apply_lock(settings: Settings) -> Iterator[Callable[[], None]]:
    """The lock of applies; nothing to check where the registry is reached and the hub's Kafka is not."""
    from hub.kafka import own_cluster
    from hub.topics.tree.apply_lock import one_apply

    with ExitStack() as opened:
        try:
            cluster = own_cluster(settings, _LOCK_LOOK_S)
            cluster.wait_ready(_LOCK_LOOK_S)
        except PeerError as error:
            note(
                f"! Other applies are not kept apart from this one, because the lock is in "
                f"Kafka: {error.message}"
            )
            yield lambda: None
            return
        hold = opened.enter_context(
            one_apply(cluster, "hub schema apply", replication_factor=settings.replication_factor, say=note)
        )
        yield hold.check


def check(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="FOLDER | SUBJECT FILE", help="Default: schemas/ of the project"),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with a file of `hub schema backup` instead of the registry")
    ] = None,
    against_git: Annotated[
        str | None, typer.Option(metavar="REV", help="Compare with the folder at a git revision")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Compare with nothing: files and references only")
    ] = False,
    annotations: Annotated[
        Annotations | None,
        typer.Option(help="Print findings in the format that a CI system shows in the file"),
    ] = None,
    data: DataOption = False,
    sample: SampleOption = 200,
    every: AllOption = False,
    readers: ReadersOption = True,
    output: OutputOption = Output.table,
) -> None:
    """Check whether the schemas are compatible with the registered ones. For CI: exit code 1 if one is
    refused, else 0.

    Examples: hub schema check      hub schema check shop.orders-value new.avsc
    Without a registry: hub schema check --against-git origin/main --annotations github
    """
    settings = load_settings()
    elsewhere = (against is not None) + (against_git is not None) + offline
    if what is not None and len(what) > 1:
        _refuse_with_subject(what, bool(elsewhere or data or annotations is not None))
        _check_subject(settings, what[0], Path(what[1]))
        return
    _refuse_together(elsewhere, data)
    folder = Path(what[0]) if what else None
    if elsewhere:
        made = _offline(settings, folder, against, against_git)
    else:
        made = _registered(settings, folder, data, None if every else sample)
    touches = touched(settings.project, made, settings if readers and not elsewhere else None)
    show_checked(made, touches, annotations, output)
    if made.refused:
        note(f"{len(made.refused)} of {len(made.items)} subjects are refused.")
        raise typer.Exit(1)
    note("All may follow.")


def _refuse_with_subject(arguments: Sequence[str], others: bool) -> None:
    """Raise CallerError for a subject and a file with more arguments, or with options of folders."""
    if len(arguments) > 2:
        raise CallerError("check takes one folder, or a subject and a file", hint="hub schema check --help")
    if others:
        raise CallerError(
            "a file under a subject is compared with the registry alone, and by its level",
            hint="leave out --against, --against-git, --offline, --data and --annotations, or check a folder",
        )


def _refuse_together(elsewhere: int, data: bool) -> None:
    """Raise CallerError for options that exclude each other; ``elsewhere``: how many name another state."""
    if elsewhere > 1:
        raise CallerError("--against, --against-git and --offline are three ways: give one of them")
    if elsewhere and data:
        raise CallerError(
            "--data asks Kafka and the registry: leave out --against, --against-git and --offline"
        )


# ---- the state to compare with


def _offline(
    settings: Settings, folder: Path | None, against: Path | None, against_git: str | None
) -> FolderPlan:
    from hub.schema_registry.folder.plan import plan
    from hub.schema_registry.folder.rules import rules_of, with_levels

    found, book = _load(settings, folder), _rulebook(settings)
    state = with_levels(_offline_state(settings, found, against, against_git), found, book)
    return plan(found, state, rules_of(book))


def _registered(settings: Settings, folder: Path | None, data: bool, sample: int | None) -> FolderPlan:
    """Return the plan against the registry; with ``data``, tried on stored events: ``sample``, None: all."""
    with _registry(settings) as registry:
        made = _online(settings, folder, registry)
        return _tried(settings, made, registry, sample) if data else made


def _registry(settings: Settings) -> closing[RemoteRegistry]:
    from hub.schema_registry.client.remote import RemoteRegistry

    return closing(RemoteRegistry(settings.registry))


def _load(settings: Settings, folder: Path | None) -> Folder:
    from hub.schema_registry.folder.load import load
    from hub.topics.tree.tree import declared_schemas

    found = load(folder or settings.project / "schemas", declared_schemas(settings.project))
    if not found.files:
        raise NotFound(
            f'folder "{found.where}" has no schemas',
            hint="a schema is a file <subject>.avsc, .json or .proto",
        )
    return found


def _online(settings: Settings, folder: Path | None, registry: RemoteRegistry) -> FolderPlan:
    from hub.schema_registry.folder.plan import plan as planned
    from hub.schema_registry.folder.rules import rules_of

    found = _load(settings, folder)
    with counted("Asking the registry") as progress:
        state = registry.state([each.subject for each in found.files], progress)
    return with_compatibility(planned(found, state, rules_of(_rulebook(settings))), state, registry)


def _rulebook(settings: Settings) -> Rulebook:
    """Return the project's rules. The server uses the rules of its own project."""
    from hub.topics.tree.live_rules import LiveRules

    return LiveRules(settings.project)()


def with_compatibility(made: FolderPlan, state: RegistryState, registry: RemoteRegistry) -> FolderPlan:
    """Refuse what the registry itself would refuse by rules that only it has. Checks only subjects that the
    registry has, at their current level, if it has all references too.
    """
    items = []
    for item in made.items:
        known = all(state.version(each.subject, each.version) for each in item.references)
        if item.status.value == "changed" and item.registers and item.level is None and item.file and known:
            reasons = registry.incompatibilities(
                item.subject, item.file.text, item.file.schema_type, item.references, item.file.metadata
            )
            if reasons:
                item = _refused(
                    item, [("REGISTRY", each, "make the change that the registry takes") for each in reasons]
                )
        items.append(item)
    return replace(made, items=tuple(items))


def _refused(item: FolderItem, reasons: Sequence[tuple[str, str, str]]) -> FolderItem:
    from hub.schema_registry.compat.compatibility import Incompatibility
    from hub.schema_registry.folder.plan import Status

    more = tuple(Incompatibility(rule, "/", message, fix, "") for rule, message, fix in reasons)
    return replace(item, status=Status.refused, reasons=(*item.reasons, *more), registers=False)


def _offline_state(
    settings: Settings, folder: Folder, against: Path | None, against_git: str | None
) -> RegistryState:
    from hub.cli.git import extract
    from hub.schema_registry.client.backup import state_in
    from hub.schema_registry.folder.files import SETTINGS_FILE
    from hub.schema_registry.folder.load import SUFFIXES, load
    from hub.schema_registry.folder.plan import as_state
    from hub.schema_registry.registry.snapshot import RegistryState
    from hub.topics.tree.tree import declared_schemas

    if against is not None:
        try:
            with against.open("rb") as opened:
                return state_in(opened, str(against))
        except OSError as error:
            raise ConfigError(f"cannot be read ({error.strerror})", where=str(against)) from None
    if against_git is None:
        return RegistryState()
    root = Path(folder.where)
    with TemporaryDirectory(prefix="hub-schemas-") as made:
        then = Path(made)
        extract(root, against_git, then, frozenset(SUFFIXES), frozenset([SETTINGS_FILE]))
        # assume that topics.yaml declared the same for the file at that revision
        moved = {
            (then / path.relative_to(root.resolve())).resolve(): each
            for path, each in declared_schemas(settings.project).items()
            if path.is_relative_to(root.resolve())
        }
        return as_state(load(then, moved))


def _check_subject(settings: Settings, subject: str, file: Path) -> None:
    from hub.errors import Conflict
    from hub.schema_registry.folder.load import SUFFIXES

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the schema cannot be read: {error}", where=str(file)) from None
    with _registry(settings) as registry:
        reasons = registry.incompatibilities(subject, text, SUFFIXES.get(file.suffix, "AVRO"), ())
    if reasons:
        raise Conflict(
            f'subject "{subject}": the registry would not take the schema:\n  ' + "\n  ".join(reasons),
            hint="make the suggested change; hub schema level changes the level, and hub schema explain "
            "shows who set a rule",
        )
    note(f'It may follow the versions of "{subject}".')


# ---- stored events


def _tried(settings: Settings, made: FolderPlan, registry: RemoteRegistry, sample: int | None) -> FolderPlan:
    """Return the plan, tested with stored events: a schema that cannot read them is refused."""
    from hub.kafka import own_cluster
    from hub.schema_registry.client.stored_events_check import check_stored
    from hub.schema_registry.formats import InvalidSchema

    cluster = own_cluster(settings)
    topics = cluster.topics()
    parsed_schemas: dict[int, ParsedSchema] = {}

    def writer_of(schema_id: int) -> ParsedSchema:
        if schema_id not in parsed_schemas:
            parsed_schemas[schema_id] = registry.parsed(registry.with_id(schema_id))
        return parsed_schemas[schema_id]

    items = []
    for item in made.items:
        topic = topic_of(item.subject)
        if (
            topic in topics
            and topic is not None
            and item.new is not None
            and item.status.value in ("new", "changed", "refused")
        ):
            try:
                with counted(f"Reading {topic}") as progress:
                    stored_check = check_stored(
                        cluster, topic, item.new, writer_of, sample=sample, progress=progress
                    )
            except InvalidSchema as error:
                note(f"{topic}: stored events are not tried: {error.message}")
                items.append(item)
                continue
            note(str(stored_check))
            if stored_check.failed:
                message = f"{stored_check}: {'; '.join(_places(stored_check.failures))}"
                item = _refused(item, [("STORED_EVENTS", message, "keep what they have: see the reasons")])
        items.append(item)
    return replace(made, items=tuple(items))
