"""The inventory's schema, reference page and examples, and what holds for any document."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendboot.errors import InventoryError
from ascendboot.inventory.load import load
from ascendboot.inventory.schema import DeviceKeys, InventoryKeys, NodeKeys, shape_at
from tests.reference_pages import SECTIONS, editor_schema
from tests.unit.inventory.written import loaded, refused

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "inventories").glob("*.yaml"))


def test_the_schema_for_editors_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(editor_schema())


def mappings(part: Any) -> Iterator[dict[str, Any]]:
    """Every mapping with keys in a JSON schema."""
    if isinstance(part, dict):
        if isinstance(part.get("properties"), dict):
            yield part
        for inner in part.values():
            yield from mappings(inner)
    if isinstance(part, list):
        for inner in part:
            yield from mappings(inner)


def test_the_schema_explains_every_key_and_allows_no_other() -> None:
    found = list(mappings(editor_schema()))
    assert len(found) == 14
    for mapping in found:
        assert mapping["additionalProperties"] is False
        for key, inner in mapping["properties"].items():
            assert {"title", "description", "examples"} <= set(inner), key
            assert "x-kind" not in inner
            assert "x-default" not in inner


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_loads_and_fits_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=inventory.schema.json\n")
    jsonschema.Draft202012Validator(editor_schema()).validate(yaml.safe_load(text))
    load(path)


def test_the_first_example_shows_every_key() -> None:
    text = (ROOT / "inventories/two-node.yaml").read_text(encoding="utf-8")
    uncommented = re.sub(r"^#(?! )(?=\w)|^#(?= +\w+:)", "", text, flags=re.MULTILINE)
    whole = yaml.safe_load(uncommented)
    jsonschema.Draft202012Validator(editor_schema()).validate(whole)
    Path("whole.yaml").write_text(uncommented, encoding="utf-8")
    short = load(ROOT / "inventories/two-node.yaml")
    assert load(Path("whole.yaml")).nodes == short.nodes
    assert set(whole) == set(InventoryKeys.model_fields)
    node = {"address", "cluster_address", "server_id", "groups"}
    assert set(whole["groups"]["rack1"]) == set(NodeKeys.model_fields) - node
    assert all(word in text for word in (*node, *DeviceKeys.model_fields))
    assert "# file: " in text  # it would be read
    assert "# leaves: " in text
    assert "# ranks_per_node: " in text  # no rank table fits it
    shown = {"resources": {"file"}, "topology": {"cores", "leaves"}, "launcher": {"ranks_per_node"}}
    for name in SECTIONS:
        assert set(whole[name]) | shown.get(name, set()) == set(shape_at((name,))["properties"])


# Whatever stands in the file: a cluster, or problems in their form; and the schema agrees.

PLAIN = "a b-[1-2] g 192.0.2.1 192.0.2.[1-2] 192.0.2.300 yes 012 auto a2 /w -x u@h:22 h.example"
WORDS = st.sampled_from([*PLAIN.split(), "::1", "[", "[1-", "1:30", "x y", "", "a\nb", "\x00"])
SCALARS = st.one_of(WORDS, st.integers(-2, 70_000), st.booleans(), st.none(), st.floats())
KEYS = st.sampled_from([*NodeKeys.model_fields, *InventoryKeys.model_fields, "<<", "", "[key]"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
IPS = st.integers(1, 99).map(lambda n: f"192.0.2.{n}")
DEVICES = st.sampled_from([8, [0, 1], [{"device_id": 3, "device_ip": "198.51.100.1"}, 2]])
GOOD_NODES = st.fixed_dictionaries(
    {"address": IPS},
    optional={"cluster_address": IPS, "server_id": IPS, "devices": DEVICES, "jump": WORDS},
)
WILD_NODES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(NodeKeys.model_fields, VALUES | WORDS | DEVICES)
)
DOCUMENTS = st.fixed_dictionaries(
    {"cluster": st.just("c"), "nodes": st.dictionaries(WORDS, GOOD_NODES | WILD_NODES)},
    optional={key: VALUES for key in InventoryKeys.model_fields if key not in ("cluster", "nodes")},
)
GOOD = st.fixed_dictionaries(
    {"cluster": st.just("c"), "nodes": st.dictionaries(st.sampled_from("abcd"), GOOD_NODES)},
    optional={"env": st.dictionaries(st.sampled_from("AB"), SCALARS)},
)


def fits(text: str) -> None:
    problems: tuple[str, ...] | None = None
    try:
        loaded(text)
    except InventoryError as error:
        problems = error.problems
    if problems is None:
        jsonschema.Draft202012Validator(editor_schema()).validate(yaml.safe_load(text))
    else:
        assert problems
        assert all(re.fullmatch(r"i\.yaml(:\d+){0,2}: [^\n\0]+", p) for p in problems)


WELL = "cluster: c\nnodes:\n  a: {address: 192.0.2.1, port: 22}\ncode: {path: /w}\n"


@pytest.mark.parametrize(
    ("part", "hostile", "where", "what"),
    [
        ("cluster: c", '"\\0": 1\ncluster: c', "1: ", "the key"),
        ("port:", '"p\\0": 1, port:', "3: nodes.a: ", "the key"),
        ("/w", '"/w\\0"', "4: code.path: ", "has the character U+0000"),
        (
            "c\n",
            'c\nresources: {file: "a\\0b"}\n',
            "2: resources.file: ",
            "has the character U+0000",
        ),
        ("22", f"0{'7' * 6000}", "3: nodes.a.port: ", "a number in a special form in YAML, not"),
        ("22", f"0b{'1' * 60000}", "3: nodes.a.port: ", "a number in a special form in YAML, not"),
        ("22", f"1{':59' * 60000}", "3: nodes.a.port: ", "to the base of 60"),
        ("code:", "".join(f"k{n}: 1\n" for n in range(999)) + "code:", "4: k0: ", "and 799 more"),
    ],
)
def test_a_hostile_inventory_is_refused_in_few_words(
    part: str, hostile: str, where: str, what: str
) -> None:
    with pytest.raises(InventoryError) as caught:
        loaded(WELL.replace(part, hostile, 1))
    said = str(caught.value)
    assert said.startswith(f"i.yaml:{where}")
    assert what in said
    assert max(map(len, said.splitlines())) < 700
    assert len(said) < 50_000


@pytest.mark.parametrize(
    ("part", "hostile", "known"),
    [
        ("code:", "".join(f"clustr{n}: 1\n" for n in range(6000)) + "code:", 16),
        (
            "port: 22}",
            f"groups: [{', '.join(f'h{n}' for n in range(400))}]}}\ngroups:\n"
            + "".join(f"  g{n}: {{port: 22}}\n" for n in range(400)),
            400,
        ),
    ],
    ids=["keys", "groups"],
)
def test_22_what_was_meant_is_looked_for_so_often_and_no_more(
    part: str, hostile: str, known: int
) -> None:
    problems = refused(WELL.replace(part, hostile, 1))
    hinted = sum("did you mean" in problem for problem in problems)
    assert 100 < hinted < 60_000 / known


@pytest.mark.parametrize(
    ("extra", "problems"),
    [
        pytest.param("".join(f"wrong_{n}: 1\n" for n in range(50_000)), 50_000, id="keys"),
        pytest.param("data:\n" + "".join(f"- w{n}\n" for n in range(50_000)), 50_000, id="values"),
        pytest.param(
            "env:\n"
            + "".join(f"  K{n}_TOKEN: s{n}abc\n" for n in range(25_000))
            + "launcher:\n  mpi_args:\n"
            + "".join(f"  - --w{n}\n" for n in range(25_000)),
            0,
            id="words beside secrets",
        ),
        pytest.param(
            "env:\n"
            + "".join(f"  OMPI_MCA_{n}: 1\n" for n in range(25_000))
            + "secret_env:\n"
            + "".join(f"- W{n}\n" for n in range(25_000)),
            25_000,
            id="names of secrets",
        ),
    ],
)
def test_item_22_many_problems_take_linear_time(extra: str, problems: int) -> None:
    before = time.process_time()
    found = refused(WELL + extra) if problems else loaded(WELL + extra).data
    assert time.process_time() - before < 10
    assert len(found) == problems


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS | GOOD | VALUES)
def test_any_document_loads_or_is_refused_in_words(document: Any) -> None:
    fits(yaml.safe_dump(document, sort_keys=False))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.text(alphabet="abc:[]{}-,\n \t#&*<'\"|>!%@`?1.0\\\u2028\x85é\ufeff", max_size=60))
def test_any_text_loads_or_is_refused_in_words(text: str) -> None:
    fits(text)
