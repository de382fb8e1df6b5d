"""[core] The section ``quotas`` of access.yaml.

::

    quotas:
      defaults: {queries_per_s: 50, subscriptions: 20}      # each user, token, webhook and address
      users:    {ana: {queries_per_s: 200}}
      groups:   {batch: {sql_seconds_per_min: 30}}          # each member
      tokens:   {checkout: {events_in_per_s: 5000, bytes_in_per_s: 10000000}}
      tenants:  {nyc: {views: [departures], events_in_per_s: 20000}}   # topics: [nyc], all callers together
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from hub.quotas.kinds import Quota
from hub.quotas.policy import Limits, QuotaPolicy, Tenant

MOST_ENTRIES, MOST_TENANTS, MOST_TREES = 5_000, 100, 100
Unlimited = Literal["unlimited"]
Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | Unlimited
Count = Annotated[int, Field(ge=1, le=1_000_000)] | Unlimited


def _subtree(text: str) -> str:
    if not text or "*" in text or any(not label for label in text.split(".")):
        raise ValueError(f'"{text[:80]}" is not a subtree: write its first labels, as in nyc or nyc.jfk')
    return text


def _kept(text: str) -> str:
    if not 0 < len(text) <= 200:
        raise ValueError("a name has 1 to 200 characters")
    return text


Subtree = Annotated[str, AfterValidator(_subtree)]
Named = Annotated[str, AfterValidator(_kept)]


class LimitsNode(BaseModel, extra="forbid", frozen=True):
    """Limits of the server. A missing key is not limited here, ``unlimited`` lifts a less specific limit."""

    events_in_per_s: Rate | None = Field(None, description="Events written over HTTP, each second.")
    bytes_in_per_s: Rate | None = Field(
        None, description="Bytes of the bodies of these requests, each second."
    )
    queries_per_s: Rate | None = Field(
        None, description="Reads of rows and messages, and SQL statements, each second."
    )
    sql_seconds_per_min: Rate | None = Field(None, description="Seconds in which SQL runs, each minute.")
    registrations_per_min: Rate | None = Field(
        None, description="Requests that register a schema, each minute."
    )
    subscriptions: Count | None = Field(None, description="Open subscriptions, push queries and tails.")
    connections: Count | None = Field(
        None, description="Requests being answered, and connections of Postgres' protocol."
    )

    def limits(self) -> Limits:
        """Return the limits that are set; None: unlimited."""
        found: dict[Quota, float | None] = {}
        for quota in Quota:
            value = getattr(self, quota.value, None)
            if value is not None:
                found[quota] = None if value == "unlimited" else float(value)
        return found


class PrincipalLimitsNode(LimitsNode):
    """Limits of a principal. Those of Kafka apply to its direct clients: ``hub access apply``."""

    kafka_bytes_out_per_s: Rate | None = Field(None, description="Client quota consumer_byte_rate of Kafka.")
    kafka_request_percentage: Rate | None = Field(
        None, description="Client quota request_percentage of Kafka."
    )


class TenantNode(LimitsNode):
    """A tenant: subtrees of topics (by default that of its name) and views."""

    topics: list[Subtree] = Field(
        default_factory=list,
        max_length=MOST_TREES,
        description="Subtrees by their first labels; by default its name.",
    )
    views: list[Named] = Field(default_factory=list, max_length=1_000, description="Names of views.")


Entries = Annotated[dict[Named, PrincipalLimitsNode], Field(max_length=MOST_ENTRIES)]


class QuotasNode(BaseModel, extra="forbid", frozen=True):
    """The section ``quotas``. ``servers``: number of servers among which the limits are divided.
    ``refusal_delay_ms``: pause before a refused request is answered."""

    servers: int = Field(1, ge=1, le=1_000, description="Servers among which the limits are divided.")
    refusal_delay_ms: int = Field(
        500, ge=0, le=10_000, description="Pause before a refused request is answered."
    )
    defaults: PrincipalLimitsNode = Field(
        PrincipalLimitsNode(), description="Of each user, token, webhook and address."
    )
    anonymous: LimitsNode = Field(
        LimitsNode(), description="Of each address of callers who are not signed in."
    )
    users: Entries = Field(default_factory=dict, description="By user.")
    groups: Entries = Field(default_factory=dict, description="Of each member of a group.")
    tokens: Entries = Field(default_factory=dict, description="By service's token.")
    webhooks: dict[Named, LimitsNode] = Field(
        default_factory=dict, max_length=MOST_ENTRIES, description="By webhook."
    )
    tenant_defaults: LimitsNode = Field(LimitsNode(), description="Of each declared tenant.")
    tenants: dict[Subtree, TenantNode] = Field(
        default_factory=dict, max_length=MOST_TENANTS, description="By subtree of topics."
    )

    def policy(self, contact: str) -> QuotaPolicy:
        """Return the limits as the input of the server's decisions."""
        own = {
            **{("users", name): node.limits() for name, node in self.users.items()},
            **{("tokens", name): node.limits() for name, node in self.tokens.items()},
            **{("webhooks", name): node.limits() for name, node in self.webhooks.items()},
        }
        return QuotaPolicy(
            self.defaults.limits(),
            self.anonymous.limits(),
            own,
            {name: node.limits() for name, node in self.groups.items()},
            self.tenant_defaults.limits(),
            tuple(
                Tenant(name, tuple(node.topics) or (name,), tuple(node.views), node.limits())
                for name, node in self.tenants.items()
            ),
            self.servers,
            self.refusal_delay_ms / 1000,
            contact,
            is_on=True,
        )

    def shared(self) -> tuple[str, str, str] | None:
        """Return a topic or view that two tenants have, and these; None: there is none."""
        holders: dict[tuple[str, str], str] = {}
        for name, node in self.tenants.items():
            for each in (
                *(("topics", topic) for topic in node.topics or (name,)),
                *(("views", view) for view in node.views),
            ):
                if (other := holders.setdefault(each, name)) != name:
                    return each[1], other, name
        return None
