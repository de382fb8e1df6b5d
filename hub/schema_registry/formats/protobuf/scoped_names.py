"""[core] Names of Protobuf types as they are written within a scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_OPTIONS = "google/protobuf/descriptor.proto"
ProtoType = FieldDescriptorProto.Type


SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in ProtoType.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}


_STATEMENTS = (
    "group map optional repeated required option reserved extensions extend message enum oneof "
    "stream export local"
)


# A type name with one of these as its first part would be misread at the start of a statement.
KEYWORDS = {*SCALARS.values(), *_STATEMENTS.split()}


@dataclass(frozen=True, slots=True)
class ScopedNames:
    """Names of types in a scope, as short as possible without ambiguity."""

    types: set[str]  # and packages, services: what a part of a name may refer to
    others: set[str]  # fields, values, oneofs: can hide only an option's name
    package: str
    normal: bool

    def called(self, full: str, scope: str, *, option: bool = False) -> str:
        """Return the name to write.

        ``full`` starts with a dot; ``scope``, the enclosing full name, does not.
        """
        if self.normal:
            return full
        name, inner = full[1:], scope
        while True:
            if not inner or name.startswith(f"{inner}."):
                short = name[len(inner) + 1 :] if inner else name
                return short if self._is_free(short, scope, inner, option) else full
            inner = "" if inner == self.package else inner.rpartition(".")[0]

    def _is_free(self, short: str, scope: str, base: str, option: bool) -> bool:
        """Return True if nothing between ``scope`` and ``base`` has the first part of the name."""
        first = short.split(".")[0]
        if first in KEYWORDS:
            return False
        while scope != base:
            found = f"{scope}.{first}"
            if found in self.types or (option and found in self.others):
                return False
            scope = scope.rpartition(".")[0]
        return True


def _symbols(files: Iterable[FileDescriptorProto]) -> tuple[set[str], set[str]]:
    """Return names that can hide a short name: types, packages and services; and all others."""
    types: set[str] = set()
    others: set[str] = set()

    def enum(each: EnumDescriptorProto, scope: str) -> None:
        types.add(_in(scope, each.name))
        others.update(_in(scope, value.name) for value in each.value)  # values are siblings of their enum

    def message(each: DescriptorProto, scope: str) -> None:
        inside = _in(scope, each.name)
        types.add(inside)
        others.update(_in(inside, part.name) for part in (*each.field, *each.extension))
        others.update(_in(inside, part.name) for part in each.oneof_decl)
        for within in each.enum_type:
            enum(within, inside)
        for nested in each.nested_type:
            message(nested, inside)

    for file in files:
        parts = file.package.split(".") if file.package else []
        types.update(".".join(parts[: count + 1]) for count in range(len(parts)))
        types.update(_in(file.package, each.name) for each in file.service)
        others.update(_in(file.package, each.name) for each in file.extension)
        for kind in file.enum_type:
            enum(kind, file.package)
        for nested in file.message_type:
            message(nested, file.package)
    return types, others


def _in(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
