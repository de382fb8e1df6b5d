"""A Protobuf schema with every kind of field."""

from __future__ import annotations

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  string id = 1;
  uint64 big = 2;
  sint32 small = 3;
  uint32 number = 4;
  optional bool flag = 5;
  enum Status { OPEN = 0; SHUT = 1; }
  Status status = 6;
  repeated Line lines = 7;
  oneof paid { string card = 8; Line voucher = 9; }
  map<int32, Line> by_number = 10;
  google.protobuf.Timestamp at = 11;
  google.protobuf.Int64Value maybe = 12;
  google.protobuf.Struct any = 13;
  bytes raw = 14;
  Order before = 15;
  message Nothing {}
  Nothing nothing = 16;
  float f = 17;
}
message Line { string product = 1; Line inner = 2; double price = 3; }
"""
