"""[core] Files that every Protobuf schema may import without a reference, as in Confluent's registry.

protoc includes Google's own (``google/protobuf/*.proto``). Clients treat the files below as built in, too,
and register no reference for them, so their fields are defined here.
"""

from __future__ import annotations

from collections.abc import Mapping

_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package = "../confluent";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""

_MONTHS = "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER"
_DAYS = "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY"
_PERIODS = "DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR"


def _proto3(package: str, body: str) -> str:
    return f'syntax = "proto3";\npackage {package};\n{body}\n'


def _enum(name: str, zero: str, others: str) -> str:
    listed = "".join(f" {each} = {number};" for number, each in enumerate([zero, *others.split()]))
    return f"enum {name} {{{listed} }}"


TEXTS: Mapping[str, str] = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _proto3(
        "confluent.type", "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/type/variant.proto": _proto3(
        "confluent.type", "message Variant { bytes metadata = 1; bytes value = 2; }"
    ),
    "google/type/calendar_period.proto": _proto3(
        "google.type", _enum("CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED", _PERIODS)
    ),
    "google/type/color.proto": _proto3(
        "google.type",
        'import "google/protobuf/wrappers.proto";\n'
        "message Color { float red = 1; float green = 2; float blue = 3; "
        "google.protobuf.FloatValue alpha = 4; }",
    ),
    "google/type/date.proto": _proto3(
        "google.type", "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"
    ),
    "google/type/datetime.proto": _proto3(
        "google.type",
        'import "google/protobuf/duration.proto";\n'
        "message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes "
        "= 5;\n  int32 seconds = 6; int32 nanos = 7;\n"
        "  oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }\n"
        "message TimeZone { string id = 1; string version = 2; }",
    ),
    "google/type/dayofweek.proto": _proto3(
        "google.type", _enum("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", _DAYS)
    ),
    "google/type/expr.proto": _proto3(
        "google.type",
        "message Expr { string expression = 1; string title = 2; string description = 3; "
        "string location = 4; }",
    ),
    "google/type/fraction.proto": _proto3(
        "google.type", "message Fraction { int64 numerator = 1; int64 denominator = 2; }"
    ),
    "google/type/latlng.proto": _proto3(
        "google.type", "message LatLng { double latitude = 1; double longitude = 2; }"
    ),
    "google/type/money.proto": _proto3(
        "google.type", "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"
    ),
    "google/type/month.proto": _proto3("google.type", _enum("Month", "MONTH_UNSPECIFIED", _MONTHS)),
    "google/type/postal_address.proto": _proto3(
        "google.type",
        "message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3;\n"
        "  string postal_code = 4; string sorting_code = 5; string administrative_area = 6; string locality "
        "= 7;\n  string sublocality = 8; repeated string address_lines = 9; repeated string recipients = "
        "10;\n  string organization = 11; }",
    ),
    "google/type/quaternion.proto": _proto3(
        "google.type", "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"
    ),
    "google/type/timeofday.proto": _proto3(
        "google.type",
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    ),
}
