"""Random SQL of incremental views over the tables of tests/delta_world.py, with the key of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

COLUMNS = {
    "orders": {"order_id": "int", "customer_id": "int", "product": "text", "amount": "number", "at": "time"},
    "customers": {"id": "int", "name": "text", "region": "text", "boss": "int"},
    "regions": {"code": "text", "title": "text", "country": "text"},
    "clicks": {"customer_id": "int", "page": "text"},
}
# Table and alias, then what joins it to those before it: rows of the first decide how many there are.
CHAINS = (
    (("orders", "o", ""),),
    (("customers", "c", ""),),
    (("orders", "o", ""), ("customers", "c", "c.id = o.customer_id")),
    (("customers", "c", ""), ("regions", "r", "r.code = c.region")),
    (("customers", "c", ""), ("customers", "b", "b.id = c.boss")),
    (
        ("orders", "o", ""),
        ("customers", "c", "c.id = o.customer_id"),
        ("regions", "r", "r.code = c.region"),
    ),
)
MANY = (  # several rows for one of the first
    (("customers", "c", ""), ("orders", "o", "o.customer_id = c.id")),
    (("customers", "c", ""), ("clicks", "k", "k.customer_id = c.id")),
    (("regions", "r", ""), ("customers", "c", "c.region = r.code")),
    (("orders", "o", ""), ("orders", "p", "p.product = o.product AND p.customer_id = o.customer_id")),
)
KEYS = {"orders": "order_id", "customers": "id", "regions": "code"}
Chain = Sequence[tuple[str, str, str]]
View = tuple[Sequence[str], str]


class ViewGrammar:
    """Views by seed: (key, SQL)."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)

    def view(self) -> View:
        shapes = (
            *(
                self._rows,
                self._rows,
                self._grouped,
                self._grouped,
                self._grouped,
                self._ranked,
                self._windowed,
            ),
            *(self._tested, self._set, self._twice, self._distinct, self._full),
        )
        return self.chance.choice(shapes)()

    # ---- shapes

    def _rows(self) -> View:
        chain = self.chance.choice(CHAINS)
        table, alias, _ = chain[0]
        items = ", ".join(f"{self._expression(chain)} AS v{n}" for n in range(self.chance.randint(1, 3)))
        sql = f"SELECT {alias}.{KEYS[table]} AS k, {items} FROM {self._joined(chain)}{self._where(chain)}"
        return ["k"], sql

    def _grouped(self) -> View:
        chain = self.chance.choice((*CHAINS, *MANY))
        groups = [self._group(chain) for _ in range(self.chance.randint(1, 2))]
        keys = [f"g{n}" for n in range(len(groups))]
        listed = [f"{group} AS {key}" for group, key in zip(groups, keys, strict=True)]
        listed += [f"{self._aggregate(chain)} AS a{n}" for n in range(self.chance.randint(1, 3))]
        sql = f"SELECT {', '.join(listed)} FROM {self._joined(chain)}{self._where(chain)}"
        sql += f" GROUP BY {', '.join(groups)}"
        if self.chance.random() < 0.4:
            sql += f" HAVING {self._number_aggregate(chain)} > {self.chance.randint(0, 3)}"
        return keys, sql

    def _ranked(self) -> View:
        chain = self.chance.choice([each for each in CHAINS if each[0][0] == "orders"])
        by = self.chance.choice(("o.product", *(["c.region"] if len(chain) > 1 else []), "o.customer_id"))
        order = self.chance.choice(("o.amount DESC, o.order_id", "o.at, o.order_id DESC"))
        ranked = self.chance.choice(("row_number", "rank", "dense_rank"))
        inner = (
            f"SELECT o.order_id AS k, {by} AS g, o.amount AS v, {ranked}() OVER (PARTITION BY {by} "
            f"ORDER BY {order}) AS rn FROM {self._joined(chain)}{self._where(chain)}"
        )
        return ["k"], f"SELECT k, g, v FROM ({inner}) WHERE rn <= {self.chance.randint(1, 3)}"

    def _windowed(self) -> View:
        chain = self.chance.choice([each for each in CHAINS if each[0][0] == "orders"])
        by = self.chance.choice(("o.product", "o.customer_id"))
        over = f"OVER (PARTITION BY {by} ORDER BY o.at, o.order_id"
        x = self.chance.choice(("o.amount", "o.order_id"))
        hours = "RANGE BETWEEN INTERVAL 5 HOURS PRECEDING AND CURRENT ROW"
        made = self.chance.choice(
            (
                f"sum({x}) {over})",
                f"count(*) {over} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
                f"lag({x}) {over})",
                f"max({x}) OVER (PARTITION BY {by})",
                f"avg({x}) OVER (PARTITION BY {by} ORDER BY o.at {hours})",
            )
        )
        return [
            "k"
        ], f"SELECT o.order_id AS k, {by} AS g, {made} AS w FROM {self._joined(chain)}{self._where(chain)}"

    def _tested(self) -> View:
        test = self.chance.choice(
            (
                "EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND {})",
                "NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND {})",
                "c.id IN (SELECT o.customer_id FROM orders o WHERE {})",
                "(SELECT count(*) FROM orders o WHERE o.customer_id = c.id AND {}) > 1",
                "c.region = 'r1' OR EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND {})",
            )
        ).format(self._condition((("orders", "o", ""),)))
        scalar = "(SELECT max(i.amount) FROM orders i WHERE i.customer_id = c.id)"
        item = self.chance.choice(("c.name", "c.region", scalar))
        return ["k"], f"SELECT c.id AS k, {item} AS v FROM customers c WHERE {test}"

    def _set(self) -> View:
        sides = (
            "SELECT region AS k FROM customers c{}",
            "SELECT code AS k FROM regions r{}",
            "SELECT product AS k FROM orders o{}",
            "SELECT page AS k FROM clicks k{}",
        )
        chosen = self.chance.sample(sides, 2)
        tables = {
            "customers c": "customers",
            "regions r": "regions",
            "orders o": "orders",
            "clicks k": "clicks",
        }
        filled = []
        for each in chosen:
            name = next(name for name in tables if name in each)
            chain = ((tables[name], name[-1], ""),)
            filled.append(each.format(self._where(chain)))
        operator = self.chance.choice(("UNION", "EXCEPT", "INTERSECT"))
        return ["k"], f"{filled[0]} {operator} {filled[1]}"

    def _twice(self) -> View:
        chain = self.chance.choice((*CHAINS, *MANY))
        inner = (
            f"SELECT {self._group(chain)} AS g, count(*) AS n, {self._number_aggregate(chain)} AS m "
            f"FROM {self._joined(chain)}{self._where(chain)} GROUP BY 1"
        )
        outer = self.chance.choice(("count(*)", "max(m)", "min(g)", "sum(n)", "count(DISTINCT g)"))
        return ["n"], f"SELECT n, {outer} AS a FROM ({inner}) GROUP BY n"

    def _distinct(self) -> View:
        chain = self.chance.choice((*CHAINS, *MANY))
        items = [self._group(chain) for _ in range(2)]
        return [
            "a",
            "b",
        ], f"SELECT DISTINCT {items[0]} AS a, {items[1]} AS b FROM {self._joined(chain)}{self._where(chain)}"

    def _full(self) -> View:
        sides = [
            f"SELECT customer_id AS k, count(*) AS {name} FROM {table} {alias} WHERE customer_id IS NOT NULL "
            f"AND ({self._condition(((table, alias, ''),))}) GROUP BY customer_id"
            for table, alias, name in (("orders", "o", "n"), ("clicks", "k", "m"))
        ]
        join = self.chance.choice(("FULL", "LEFT", "RIGHT", "INNER"))
        key = {"FULL": "coalesce(x.k, y.k)", "RIGHT": "y.k"}.get(join, "x.k")
        return ["k"], f"SELECT {key} AS k, n, m FROM ({sides[0]}) x {join} JOIN ({sides[1]}) y ON x.k = y.k"

    # ---- parts

    def _joined(self, chain: Chain) -> str:
        words = [f"{chain[0][0]} {chain[0][1]}"]
        for table, alias, on in chain[1:]:
            join = self.chance.choice(("JOIN", "LEFT JOIN", "LEFT JOIN"))
            extra = ""
            if self.chance.random() < 0.25:
                extra = f" AND {self._condition(((table, alias, ''),))}"
            words.append(f"{join} {table} {alias} ON {on}{extra}")
        return " ".join(words)

    def _where(self, chain: Chain) -> str:
        if self.chance.random() < 0.45:
            return ""
        first = self._condition(chain)
        if self.chance.random() < 0.4:
            first = f"{first} {self.chance.choice(('AND', 'OR'))} {self._condition(chain)}"
        return f" WHERE {first}"

    def _condition(self, chain: Chain) -> str:
        table, alias, _ = self.chance.choice(list(chain))
        name, kind = self.chance.choice(list(COLUMNS[table].items()))
        column = f"{alias}.{name}"
        if self.chance.random() < 0.2:
            return f"{column} IS {self.chance.choice(('', 'NOT '))}NULL"
        if kind == "text":
            return self.chance.choice(
                (
                    f"{column} <> 'x'",
                    f"{column} IN ('r1', 'y', 'A', 'no', 'shop', 'Ann')",
                    f"{column} > 'b'",
                    f"NOT coalesce({column}, '') = 'Ann'",
                    f"{column} LIKE '%o%'",
                )
            )
        if kind == "time":
            return f"{column} >= TIMESTAMP '2026-01-03T00:00:00Z'"
        return self.chance.choice(
            (
                f"{column} > 3",
                f"{column} BETWEEN 2 AND 30",
                f"{column} % 2 = 0",
                f"coalesce({column}, 5) < 6",
                f"{column} <=> 4",
            )
        )

    def _columns(self, chain: Chain, *kinds: str) -> list[str]:
        return [
            f"{alias}.{name}"
            for table, alias, _ in chain
            for name, kind in COLUMNS[table].items()
            if kind in kinds
        ]

    def _expression(self, chain: Chain) -> str:
        column = self.chance.choice(self._columns(chain, "text", "int", "number"))
        texts = self._columns(chain, "text")
        return self.chance.choice(
            (
                column,
                column,
                f"coalesce({column}, {column})",
                f"concat_ws('-', {', '.join(texts)})",
                f"CASE WHEN {self._condition(chain)} THEN {column} END",
                f"{column} IS NULL",
            )
        )

    def _group(self, chain: Chain) -> str:
        return self.chance.choice(
            (
                *self._columns(chain, "text", "int"),
                f"coalesce({self.chance.choice(self._columns(chain, 'text'))}, 'none')",
            )
        )

    def _aggregate(self, chain: Chain) -> str:
        column = self.chance.choice(self._columns(chain, "text", "int", "number"))
        return self.chance.choice(
            (
                self._number_aggregate(chain),
                f"max({column})",
                f"min({column})",
                f"count(DISTINCT {column})",
                f"array_sort(collect_set({column}))",
            )
        )

    def _number_aggregate(self, chain: Chain) -> str:
        numbers = self._columns(chain, "int", "number")
        column = self.chance.choice(self._columns(chain, "text", "int", "number"))
        found = ["count(*)", f"count({column})", f"count_if({self._condition(chain)})"]
        if numbers:
            found += [
                f"sum({self.chance.choice(numbers)})",
                f"sum(CASE WHEN {self._condition(chain)} THEN 1 ELSE 0 END)",
            ]
        return self.chance.choice(found)
