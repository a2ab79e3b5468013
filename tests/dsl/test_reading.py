"""Reading YAML: YAML 1.2's scalars, positions, full messages, hostile input."""

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemic.dsl.reading import MOST_BYTES, Document, read_file, read_yaml
from mnemic.errors import InvalidSpec, UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1.", 1.0), (".5", 0.5), ("-1.5E+3", -1500.0), ("+3", 3), ("010", 10),
        ("0x1F", 31), ("0o17", 15), (".inf", math.inf), ("-.INF", -math.inf),
        ("no", "no"), ("on", "on"), ("off", "off"), ("yes", "yes"), ("y", "y"),
        ("true", True), ("False", False), ("tRUE", "tRUE"),
        ("null", None), ("~", None), ("", None), ("'null'", "null"), ('"1"', "1"),
        ("1_000", "1_000"), ("1:30", "1:30"), ("2001-01-01", "2001-01-01"), ("0b1", "0b1"),
        ("|\n  x\n  y\n", "x\ny\n"), ("9223372036854775807", 2**63 - 1),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    data = read_yaml(f"a: {text}", "x.yaml").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_nan_is_a_float() -> None:
    assert math.isnan(read_yaml(".nan", "x.yaml").data)


@pytest.mark.parametrize("text", ["", "\n", "# nothing", "---\n", "\ufeff", "---\n...\n"])
def test_an_empty_document_is_null(text: str) -> None:
    assert read_yaml(text, "x.yaml").data is None


def test_a_byte_order_mark_and_a_version_are_fine() -> None:
    assert read_yaml(b"\xef\xbb\xbf%YAML 1.2\n---\na: \xcf\x86\n", "x.yaml").data == {"a": "φ"}


def test_on_is_a_key() -> None:
    assert read_yaml("{on: gradient, 'true': 1}", "x.yaml").data == {"on": "gradient", "true": 1}


def test_every_value_and_key_has_a_position() -> None:
    document = read_yaml("a:\n  b: [1, {c: 2}]\n", "x.yaml")
    assert document.positions == {
        (): (1, 1),
        ("a",): (2, 3),
        ("a", "b"): (2, 6),
        ("a", "b", 0): (2, 7),
        ("a", "b", 1): (2, 10),
        ("a", "b", 1, "c"): (2, 14),
    }
    assert document.key_positions == {
        ("a",): (1, 1),
        ("a", "b"): (2, 3),
        ("a", "b", 1, "c"): (2, 11),
    }
    assert document.where(("a", "b", 1, "c")) == "x.yaml:2:14 a.b[1].c"
    assert document.where(("a", "b"), key=True) == "x.yaml:2:3 a.b"
    assert document.where(("a", "missing", "x")) == "x.yaml:2:3 a.missing.x"
    assert document.where(()) == "x.yaml:1:1"


def test_an_alias_is_a_copy_at_its_own_position() -> None:
    document = read_yaml("a: &a {x: [1]}\nb: *a\n", "x.yaml")
    document.data["a"]["x"].append(2)
    assert document.data["b"] == {"x": [1]}
    assert document.positions["b",] == (2, 4)
    assert document.positions["b", "x"] == (1, 11)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1: a key given twice: read 'a' (first at 1:1)"),
        ("{a: {b: 1, 'b': 2}}", "1:12: a key given twice: read 'b' (first at 1:6)"),
        ("a: !!python/name:os.system x",
         "1:4: tags are not allowed: read 'tag:yaml.org,2002:python/name:os.system'"),
        ("a: !!str 1", "1:4: tags are not allowed: read 'tag:yaml.org,2002:str'"),
        ("a: ! 1", "1:4: tags are not allowed: read '!'"),
        ("a: !b {}", "1:4: tags are not allowed: read '!b'"),
        ("1: a", "1:1: a key must be a string: read '1' (quote it)"),
        ("null: a", "1:1: a key must be a string: read 'null' (quote it)"),
        ("? [a]\n: b", "1:3: a key must be a string (quote it)"),
        ("<<: {a: 1}", "1:1: merge keys are not allowed: read '<<' (write the keys out)"),
        ("a: 1\n---\nb: 2", "2:1: a second document (one file holds one)"),
        ("a:\n\tb: 1",
         "2:1: found character '\\t' that cannot start any token (indent with spaces)"),
        ("a: b: c", "1:5: mapping values are not allowed here (keys of one mapping begin in one"
         " column; a text with ': ' in it is quoted)"),
        ("a: [1", "1:6: expected ',' or ']', but got the end of the text"),
        ("a: 'b", "1:6: found the end of the text where a quote is to close"),
        ("a: |\n  b\n c", "3:2: expected the end of an indented part, but found a text (lines of"
         " one mapping or list begin in one column)"),
        ("a: @b", "1:4: found character '@' that cannot start any token (quote a text that begins"
         " so)"),
        ("a: \0", "1:4: a control character: read '\\x00'"),
        ("a: b\n  \x07", "2:3: a control character: read '\\x07'"),
        ('a: "\\0"', "1:4: a control character or half a surrogate pair: read '\\x00'"),
        ('a: "\\frac"', "1:4: a control character or half a surrogate pair: read '\\x0crac' (in"
         " double quotes a backslash begins an escape: write single ones)"),
        ('a: "\\ud800"', "1:4: a control character or half a surrogate pair: read '\\ud800'"),
        ('a: "\\UFFFFFFFF"', "1:7: an escape or a directive with an impossible number"),
        (b"a: 1\nb: \xff", "2:4: not UTF-8: byte 0xff (save the file as UTF-8)"),
        ("a: \ud800", "1:4: not UTF-8: byte 0xed (save the file as UTF-8)"),
        ("a: 9223372036854775808",
         "1:4: an integer of more than 64 bits: read '9223372036854775808'"),
        ("a: " + "9" * 5000, f"1:4: an integer of more than 64 bits: read '{'9' * 57}...'"),
        ("a: 1e999", "1:4: a number too large for a float: read '1e999' (infinity is .inf)"),
        ("a: *b", "1:4: an alias without an anchor that ends before it: read 'b'"),
        ("&a [*a]", "1:5: an alias without an anchor that ends before it: read 'a'"),
        ("a: &a 1\nb: [" + "*a," * 65 + "]", "2:197: more than 64 aliases"),
        ("[" * 33 + "]" * 33, "1:33: nested more than 32 deep"),
        ("[" * 100_000, "1:33: nested more than 32 deep"),
        ("[" + "1," * 20_000 + "]", "1:40000: more than 20000 values, aliases expanded"),
        ("#" * (MOST_BYTES + 1), "1:1: larger than 256 KiB"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said_in_full(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_yaml(text, "specs/x.yaml")
    assert str(caught.value) == f"specs/x.yaml:{message}"


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_yaml("a: !b 1\na: 2\n1: 3\nb: [", "x.yaml")
    assert [issue.where for issue in caught.value.issues] == [
        "x.yaml:1:4", "x.yaml:2:1", "x.yaml:3:1", "x.yaml:4:5",
    ]  # fmt: skip


def _bomb() -> str:
    pairs = zip("abcdef", "bcdefg", strict=True)
    lines = [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in pairs]
    return "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *lines])


def _tower() -> str:
    lines = [f"b{n}: &b{n} {'[' * 20}*b{n - 1}{']' * 20}" for n in range(1, 60)]
    return "\n".join(["b0: &b0 x", *lines])


@pytest.mark.parametrize(
    "text",
    [
        _bomb(), _tower(), "{a: " * 60_000, "- " * 120_000, "? " * 120_000, "[? " * 80_000,
        "a:\n" * 80_000, '"' + "a\n" * 130_000, "[" + '"a" ' * 60_000, "&a " * 80_000,
        "%TAG !a! b\n" * 20_000, "%YAML 1." + "9" * 5_000 + "\n---\n", "!" * 260_000,
        "a: !<" + "%FF" * 100 + "> x", "x" * 2_000 + ": 1", "{" + "a: 1, " * 30_000,
    ],
    ids=range(16),
)  # fmt: skip
def test_hostile_texts_are_refused_soon(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InvalidSpec) as caught:
        read_yaml(text, "x.yaml")
    assert time.perf_counter() - start < 3
    assert len(caught.value.issues) <= 20


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n")
    assert read_file(path).data == {"a": 1}
    assert read_file(str(path)) == Document(
        {"a": 1}, str(path), {(): (1, 1), ("a",): (1, 4)}, {("a",): (1, 1)}
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "compiled").mkdir()
    spec = tmp_path / "compiled" / "spec.yaml"
    spec.touch()
    cases: list[tuple[str | Path, str]] = [
        (tmp_path / "missing.yaml", f"{tmp_path}/missing.yaml: No such file or directory"),
        (tmp_path, f"{tmp_path}: not a file"),
        (spec.parent, f"{spec.parent}: not a file; it is a folder, whose spec is {spec}"),
        (tmp_path / "pipe", f"{tmp_path}/pipe: not a file"),
        ("a\0b", "'a\\x00b': embedded null byte"),
    ]
    for path, message in cases:
        with pytest.raises(UsageError) as caught:
            read_file(path)
        assert str(caught.value) == message


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * (MOST_BYTES + 100))
    with pytest.raises(InvalidSpec, match=r"x.yaml:1:1: larger than 256 KiB"):
        read_file(path)


MARKS = [*"-?:,[]{}#&*!|>'\"%@`~.ab01\n\t \\x"]
WORDS = ["\n  ", "- ", ": ", "---\n", "<<", "\\U", "%YAML "]
SYNTAX = st.lists(st.sampled_from(MARKS + WORDS)).map("".join)


@settings(max_examples=1000, deadline=None)
@given(st.one_of(st.text(), st.binary(), SYNTAX))
def test_anything_is_read_or_refused(text: str | bytes) -> None:
    try:
        document = read_yaml(text, "x.yaml")
    except InvalidSpec as error:
        assert all(issue.where.startswith("x.yaml:") for issue in error.issues)
        return
    assert () in document.positions


KEYS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=8)
PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1), KEYS,
        st.floats(allow_nan=False),
    ),
    lambda below: st.one_of(st.lists(below), st.dictionaries(KEYS, below)),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(PLAIN)
def test_what_pyyaml_writes_quoted_is_read_back(data: Any) -> None:
    class Dumper(yaml.SafeDumper):
        """Every string in quotes, floats with a point: YAML 1.1 and 1.2 then agree."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(
        str, lambda dumper, word: dumper.represent_scalar("tag:yaml.org,2002:str", word, style='"')
    )
    text = yaml.dump(data, Dumper=Dumper, allow_unicode=True)
    assert read_yaml(text, "x.yaml").data == data
