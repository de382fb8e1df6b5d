"""[core] The text of a view's SQL, from which derived tables are cut out verbatim."""

from __future__ import annotations

import sqlglot
from sqlglot import Token, TokenType

DIALECT = "spark"


class SqlText:
    """The SQL's text and tokens, from which derived tables are extracted verbatim."""

    def __init__(self, sql: str, *, blind: bool = False) -> None:
        self.sql = sql
        self.blind = blind
        self.tokens: list[Token] = [] if blind else list(sqlglot.tokenize(sql, read=DIALECT))

    def none(self) -> SqlText:
        """Return a text without cuts: for a part that is read several times or is inside an expression."""
        return SqlText("", blind=True)

    def derived(self, alias: str) -> tuple[int, int, str | None] | None:
        """Return the span inside ``(…) [AS] alias`` if there is exactly one."""
        found = []
        for number, token in enumerate(self.tokens):
            if token.text.lower() != alias.lower() or number < 2:
                continue
            before = number - (2 if self.tokens[number - 1].token_type == TokenType.ALIAS else 1)
            if self.tokens[before].token_type == TokenType.R_PAREN:
                opening = self._opening(before)
                if opening is not None and self._is_query(opening):
                    found.append((self.tokens[opening].end + 1, self.tokens[before].start, None))
        return found[0] if len(found) == 1 else None

    def cte(self, alias: str) -> tuple[int, int, str | None] | None:
        """Return the span inside ``alias AS (…)`` if there is exactly one."""
        found = []
        for number, token in enumerate(self.tokens[:-2]):
            if token.text.lower() != alias.lower() or self.tokens[number + 1].token_type != TokenType.ALIAS:
                continue
            if self.tokens[number + 2].token_type == TokenType.L_PAREN:
                closing = self._closing(number + 2)
                if closing is not None and self._is_query(number + 2):
                    found.append((self.tokens[number + 2].end + 1, self.tokens[closing].start, alias))
        return found[0] if len(found) == 1 else None

    def ctes_before(self, at: int) -> str:
        """Return the text of the top WITH's parts that end before ``at``: those a query at that place can
        refer to.
        """
        if not self.tokens or self.tokens[0].token_type != TokenType.WITH:
            return ""
        parts: list[tuple[int, int]] = []
        number = 1
        while number + 2 < len(self.tokens) and self.tokens[number + 2].token_type == TokenType.L_PAREN:
            closing = self._closing(number + 2)
            if closing is None or self.tokens[closing].end >= at:
                break
            parts.append((self.tokens[number].start, self.tokens[closing].end + 1))
            if closing + 1 >= len(self.tokens) or self.tokens[closing + 1].token_type != TokenType.COMMA:
                break
            number = closing + 2
        return ", ".join(self.sql[start:end] for start, end in parts)

    def _is_query(self, opening: int) -> bool:
        return self.tokens[opening + 1].token_type in (TokenType.SELECT, TokenType.WITH)

    def _closing(self, opening: int) -> int | None:
        depth = 0
        for number in range(opening, len(self.tokens)):
            depth += _DEPTH.get(self.tokens[number].token_type, 0)
            if depth == 0:
                return number
        return None

    def _opening(self, closing: int) -> int | None:
        depth = 0
        for number in range(closing, -1, -1):
            depth += _DEPTH.get(self.tokens[number].token_type, 0)
            if depth == 0:
                return number
        return None


_DEPTH = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
