#!/usr/bin/env python3
"""Generates graph/src/schema/table.rs from the schemas of the pinned `onnx` package.

    pip install onnx==1.23.2
    python graph/scripts/schemas.py            write the table
    python graph/scripts/schemas.py --check    exit 1 when the file differs from what would be written
    python graph/scripts/schemas.py --diff     print what changed at every version step (for graph/src/versions)

Exit 3: the package is not there in that version. The layout is read by graph/src/schema/decode.rs (`Table`); the two change together. Nothing in the
file depends on the order in which the package lists its schemas, nor on its prose.
"""

import pathlib
import re
import struct
import sys

PINNED = "1.23.2"
TARGET = pathlib.Path(__file__).resolve().parent.parent / "src" / "schema" / "table.rs"
MAPS = [
    "map(int64, string)",
    "map(int64, float)",
    "map(int64, double)",
    "map(string, int64)",
    "map(string, float)",
    "map(string, double)",
    "seq(map(string, float))",
    "seq(map(int64, float))",
]
DEPRECATED, EXPERIMENTAL, FUNCTION = 1, 2, 4


def missing(found):
    print(f"needs onnx {PINNED}, found {found}: pip install onnx=={PINNED}", file=sys.stderr)
    sys.exit(3)


def load():
    try:
        import onnx
        from onnx import defs
    except ImportError:
        missing("none")
    if onnx.__version__ != PINNED:
        missing(onnx.__version__)
    schemas = defs.get_all_schemas_with_history()
    return onnx, sorted(schemas, key=lambda s: (s.domain.encode(), s.name.encode(), s.since_version))


class Pool:
    """Distinct items in the order in which they were first seen."""

    def __init__(self):
        self.items = []
        self.index = {}

    def add(self, item):
        if item not in self.index:
            self.index[item] = len(self.items)
            self.items.append(item)
        return self.index[item]


def type_bit(onnx, text):
    """(word, bit) of one type: words are tensor, seq, optional, optional(seq), maps."""
    if text in MAPS:
        return 4, MAPS.index(text)
    form, element = re.fullmatch(r"(.*?)tensor\((\w+)\)\)*", text).groups()
    word = {"": 0, "seq(": 1, "optional(": 2, "optional(seq(": 3}[form]
    names = {"float": "FLOAT", "double": "DOUBLE"}
    return word, onnx.TensorProto.DataType.Value(names.get(element, element.upper()))


def type_set(onnx, types):
    words = [0] * 5
    for text in types:
        word, bit = type_bit(onnx, text)
        words[word] |= 1 << bit
    return tuple(words)


class Tables:
    def __init__(self, onnx, schemas):
        self.onnx = onnx
        self.names, self.sets, self.ints, self.floats = Pool(), Pool(), Pool(), Pool()
        self.lists, self.ops, self.since, self.at, self.code = [], [], [], [], []
        for s in schemas:
            key = [self.names.add(s.domain), self.names.add(s.name)]
            if not self.ops or self.ops[-1][:2] != key:
                self.ops.append([*key, len(self.since), 0])
            self.ops[-1][3] += 1
            self.since.append(s.since_version)
            self.at.append(len(self.code))
            self.schema(s)

    def schema(self, s):
        flags = DEPRECATED if s.deprecated else 0
        flags |= EXPERIMENTAL if "EXPERIMENTAL" in str(s.support_level) else 0
        flags |= FUNCTION if s.has_function or s.has_context_dependent_function else 0
        constraints = sorted(s.type_constraints, key=lambda c: c.type_param_str)
        attributes = sorted(s.attributes.values(), key=lambda a: a.name)
        self.code += [flags, len(constraints), len(s.inputs), len(s.outputs), len(attributes)]
        for c in constraints:
            self.code += [self.names.add(c.type_param_str), self.sets.add(type_set(self.onnx, c.allowed_type_strs))]
        variables = [c.type_param_str for c in constraints]
        for p in [*s.inputs, *s.outputs]:
            if p.type_str in variables:
                ty = 0x8000 | variables.index(p.type_str)
            else:
                ty = self.sets.add(type_set(self.onnx, [p.type_str]))
            option = {"Single": 0, "Optional": 1, "Variadic": 2}[p.option.name]
            least = p.min_arity if option == 2 else 0
            self.code += [self.names.add(p.name), ty, option | p.is_homogeneous << 2 | least << 3]
        for a in attributes:
            has, default = self.default(a.default_value)
            self.code += [self.names.add(a.name), int(a.type.value) | a.required << 8 | has << 9, default]

    def default(self, value):
        helper = self.onnx.AttributeProto
        as_name = lambda raw: self.names.add(raw.decode("utf-8"))
        if value.type == helper.UNDEFINED:
            return 0, 0
        if value.type == helper.FLOAT:
            return 1, self.floats.add(float_bits(value.f))
        if value.type == helper.INT:
            return 1, self.ints.add(value.i)
        if value.type == helper.STRING:
            return 1, as_name(value.s)
        items = {
            helper.INTS: [self.ints.add(i) for i in value.ints],
            helper.FLOATS: [self.floats.add(float_bits(f)) for f in value.floats],
            helper.STRINGS: [as_name(s) for s in value.strings],
        }[value.type]  # a default of any other kind needs a place in the layout first
        self.lists += [len(items), *items]
        return 1, len(self.lists) - len(items) - 1


def float_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def wrap(items, separator):
    line, lines = "   ", []
    for item in items:
        if len(line) + len(item) + len(separator) > 98:
            lines.append(line)
            line = "   "
        line += " " + item + separator.rstrip()
    return [*lines, line]


def array(name, doc, kind, items):
    items = [str(i).replace("'", "") for i in items]
    head = [f"/// {doc}", f"pub(super) static {name}: [{kind}; {len(items)}] = ["]
    return [*head, *wrap(items, ", "), "];", ""]


def blob(names):
    offsets, at = [], 0
    for name in names:
        assert not re.search(r'[\s"\\]', name), name
        offsets.append(at)
        at += len(name.encode()) + 1
    offsets.append(at)
    text, line = [], ""
    for name in names:
        if len(line) + len(name) > 96:
            text.append(line + "\\")
            line = ""
        line += name + " "
    # An empty name at the start of a line would be eaten with the line's indentation.
    text.append(line + '";')
    assert not any(t.startswith(" ") for t in text[1:])
    text[0] = f'pub(super) static NAMES: &str = "{text[0]}'
    head = ["/// Every string of the table, each followed by one space."]
    return [*head, *text, ""], offsets


def render(tables):
    code, offsets = blob(tables.names.items)
    for what in [offsets, tables.at, tables.code, tables.lists]:
        assert max(what, default=0) < 1 << 16
    rows = lambda items, form: ["[" + ", ".join(form(i) for i in item) + "]" for item in items]
    out = [
        "//! The operator schemas of ONNX, every version of every operator. Generated by",
        f"//! `graph/scripts/schemas.py` from the `onnx` package {PINNED}: not to be edited, exempt from the",
        "//! length rule. The layout is described at `Table` in `decode.rs`, its only reader.",
        "",
        f"/// The version of the `onnx` package that this table was made from.",
        f'pub(super) static PACKAGE: &str = "{PINNED}";',
        "",
        *code,
        *array("NAME_AT", "Where each name begins in `NAMES`, and the end.", "u16", offsets),
        *array("SETS", "Distinct type sets: tensor, seq, optional, optional(seq), maps.", "[u32; 5]",
               rows(tables.sets.items, hex)),
        *array("INTS", "Distinct default integers.", "i64", tables.ints.items),
        *array("FLOATS", "Distinct default floats, as bits.", "u32", map(hex, tables.floats.items)),
        *array("LISTS", "Default lists: a count, then indices.", "u16", tables.lists),
        *array("OPS", "Operators by domain and name: domain, name, first version row, count.",
               "[u16; 4]", rows(tables.ops, str)),
        *array("SINCE", "Version rows: since-version, rising within an operator.", "u16", tables.since),
        *array("AT", "Version rows: where the row's schema begins in `CODE`.", "u16", tables.at),
        *array("CODE", "The schemas.", "u16", tables.code),
    ]
    return "\n".join(out).rstrip() + "\n"


def describe(s):
    """A schema as a flat dict, for comparison of two versions."""
    out = {}
    for way, params in ("in", s.inputs), ("out", s.outputs):
        for i, p in enumerate(params):
            out[f"{way}{i}"] = f"{p.name}:{p.type_str}:{p.option.name}:{p.is_homogeneous}:{p.min_arity}"
    for a in s.attributes.values():
        value = str(a.default_value).replace("\n", " ") if a.default_value.type else "-"
        out[f"@{a.name}"] = f"{a.type.name} {'required' if a.required else ''} {value}"
    for c in s.type_constraints:
        out[f"type {c.type_param_str}"] = set(c.allowed_type_strs)
    out["deprecated"] = s.deprecated
    return out


def diff(schemas):
    last = None
    for s in schemas:
        if last is not None and (last.domain, last.name) == (s.domain, s.name):
            old, new = describe(last), describe(s)
            print(f"{s.domain or 'ai.onnx'} {s.name} {last.since_version} -> {s.since_version}")
            for key in sorted({*old, *new}):
                a, b = old.get(key), new.get(key)
                if a == b:
                    continue
                if isinstance(a, set) and isinstance(b, set):
                    print(f"    {key}: + {sorted(b - a)} - {sorted(a - b)}")
                else:
                    print(f"    {key}: {a} => {b}")
        last = s


def main(arguments):
    onnx, schemas = load()
    if arguments == ["--diff"]:
        return diff(schemas)
    text = render(Tables(onnx, schemas))
    if arguments == ["--check"]:
        if TARGET.read_text(encoding="utf-8") != text:
            sys.exit(f"{TARGET.name} differs from onnx {PINNED}: run this script without --check")
        return print(f"{TARGET.name} matches onnx {PINNED}: {len(schemas)} schemas")
    if arguments:
        sys.exit(__doc__)
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
