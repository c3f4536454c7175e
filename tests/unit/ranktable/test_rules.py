"""Every rule by one field that breaks it; and the page about them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ascendboot.errors import RankTableError
from ascendboot.ranktable.rules import Problem, Product, rules
from ascendboot.ranktable.validate import validate_table
from ascendboot.value import replace
from tests.unit.ranktable.examples import ALL, DROP, Document, changed, source_of, v10, v12, v20

RANK0 = "server_list/0/device/0"
RANK1 = "server_list/0/device/1"
ADDRESSES = "rank_list/0/level_list/0/rank_addr_list"
ADDRESS = f"{ADDRESSES}/0"
INSTANCE = "group_list/0/instance_list/0"
LONG = "n" * 65

TABLES = Path(__file__).parents[2] / "data/ranktables"

BROKEN = yaml.safe_load((TABLES / "broken.yaml").read_text(encoding="utf-8"))
WEIGHED = yaml.safe_load((TABLES / "weighed.yaml").read_text(encoding="utf-8"))

# generation, where, value, the rules that must speak, and no others
CASES: list[tuple[str, str, object, str]] = [
    (generation, path, value, rules)
    for generation, rows in BROKEN.items()
    for path, value, rules in rows
]
LEVELS = v20()["rank_list"][0]["level_list"]

# too much of it
CASES += [
    ("1.0", "server_list/0/server_id", LONG, "too-long"),
    ("1.2", "super_pod_list/0/super_pod_id", "p" * 128, "too-long"),
    ("2.0", f"{ADDRESS}/plane_id", "p" * 1025, "out-of-range"),
    ("2.0", f"{ADDRESS}/ports", ["0/0"] * 17, ""),
    ("2.0", f"{ADDRESS}/ports", [f"0/{port}" for port in range(17)], "out-of-range"),
    ("2.0", f"{ADDRESS}/backup_addr", ["203.0.113.9"] * 17, "out-of-range"),
    ("2.0", ADDRESSES, LEVELS[0]["rank_addr_list"] * 25, "out-of-range instance-addresses"),
    ("2.0", "rank_list/0/level_list", LEVELS[:1] * 9, "out-of-range layers"),
    ("group list", "group_list/0/group_name", "g" * 128, "too-long"),
    ("group list", f"{INSTANCE}/server_id", LONG, "too-long"),
]


def ids(problems: tuple[Problem, ...]) -> set[str]:
    return {problem.id for problem in problems}


@pytest.mark.parametrize("generation", ALL)
def test_a_sound_table_has_no_problem(generation: str) -> None:
    assert validate_table(source_of(ALL[generation])) == ()


@pytest.mark.parametrize(("generation", "path", "value", "rules"), CASES)
def test_one_wrong_field_is_named_by_its_rule(
    generation: str, path: str, value: object, rules: str
) -> None:
    problems = validate_table(source_of(changed(ALL[generation], path, value)))
    assert ids(problems) == set(rules.split())


@pytest.mark.parametrize("case", WEIGHED, ids=str)
def test_products_and_jobs_decide_how_much_a_rule_weighs(case: Document) -> None:
    name = case["table"]
    document = ALL[name] if name in ALL else v10(*map(int, name.split(" x ")))
    for path, value in case.get("changes", {}).items():
        document = changed(document, path, value)
    product, job = case.get("product"), case.get("job")
    problems = validate_table(source_of(document), product=product, job=job)
    assert {f"{problem.level[0]}:{problem.id}" for problem in problems} == set(case["reports"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "rank_id[x] is invalid"),
        ("", "rank_id[] is invalid"),
        ("4294967296", "rank_id[4294967296] is invalid"),
        (" 0", ""),
        ("0x0", ""),
        ("+0", ""),
    ],
)
def test_hccl_s_words_are_quoted_where_hccl_refuses(text: str, words: str) -> None:
    (problem,) = validate_table(source_of(changed(v10(), f"{RANK0}/rank_id", text)))
    assert (problem.id, problem.hccl) == ("not-digits", words)


@pytest.mark.parametrize(
    ("document", "what"),
    [([], "a list"), ("x", 'the string "x"'), (None, "null"), (True, "true"), (3, "the number 3")],
)
def test_what_is_no_object_is_no_rank_table(document: object, what: str) -> None:
    with pytest.raises(RankTableError) as caught:
        validate_table(source_of(document))
    assert str(caught.value) == (
        f"table.json: not a rank table: the document is {what}, not an object"
    )


def test_over_roce_every_device_needs_an_address() -> None:
    """HCCL_INTRA_ROCE_ENABLE: on one server and inside one super pod, too (hcomm, Concise)."""

    def told(document: Document, product: Product) -> list[str]:
        without = source_of(changed(document, f"{RANK1}/device_ip", DROP))
        found = validate_table(without, product=product, intra_roce=True)
        return [problem.text for problem in found if problem.id == "device-ip-missing"]

    one_pod = changed(v12(2), "super_pod_list", v12(2)["super_pod_list"][:1])
    one_pod["super_pod_list"][0]["server_list"].append({"server_id": "node_1"})
    assert told(v10(1), "a2") == ["node_0 device 1 has no device_ip, and ranks talk over RoCE"]
    assert told(one_pod, "a3") == [
        "node_0 device 1 has no device_ip, and there are several servers"
    ]
    without = source_of(changed(one_pod, f"{RANK1}/device_ip", DROP))
    assert "device-ip-missing" not in ids(validate_table(without, product="a3"))


def test_tables_of_heterogeneous_clusters_are_named() -> None:
    """HCCL reads 1.1 by another reader, which begins with `collective_id` (hcomm, Heterog)."""
    (problem,) = validate_table(source_of(changed(v10(), "version", "1.1")))
    assert problem.hccl == "json object has no property called collective_id"
    with pytest.raises(RankTableError) as caught:
        validate_table(source_of({"version": "1.1", "collective_id": "c", "node_list": []}))
    assert str(caught.value) == (
        "table.json: not a rank table, but a table of version 1.1, that of clusters of several "
        "kinds of machines, which ascendboot does not know: it has node_list"
    )


def test_an_object_without_any_of_the_lists_is_no_rank_table() -> None:
    with pytest.raises(RankTableError, match="none of server_list, rank_list and group_list is"):
        validate_table(source_of({"status": "completed", "version": "1.0"}))


def test_a_problem_says_where_what_and_in_hccl_s_words() -> None:
    (problem,) = validate_table(source_of(changed(v10(), f"{RANK0}/rank_id", "9")))
    assert (problem.where, problem.text, problem.hccl, problem.remedy) == (
        "server_list[0].device[0].rank_id",
        "rank_id 9 is too high: 4 ranks are numbered 0 to 3; missing: 0",
        "rankList[0] rankId[9] error",
        "Number the ranks from 0, each number once",
    )


def test_the_file_itself_is_judged_too() -> None:
    sound = source_of(v10())
    source = replace(
        sound,
        doubled=(("version",),),
        absolute="/data/hccl.json",
        mode=0o664,
        is_symlink=True,
        has_bom=True,
    )
    assert [(p.level, p.id) for p in validate_table(source, job="rec-sdk-tf")] == [
        ("error", "file-symlink"),
        ("error", "file-writable"),
        ("error", "file-bom"),
        ("error", "doubled-key"),
    ]
    assert {p.id for p in validate_table(source) if p.level == "warning"} == {
        "file-symlink",
        "file-writable",
    }


@pytest.mark.parametrize(
    ("path", "is_refused"),
    [("/a/t.json", False), ("/a/t.txt", True), ("/a.json.d/t.json", True), ("/a/json", True)],
)
def test_the_path_ends_in_json_once(path: str, is_refused: bool) -> None:  # noqa: FBT001
    problems = validate_table(replace(source_of(v10()), absolute=path))
    assert ids(problems) == ({"file-name"} if is_refused else set())


def test_every_rule_is_broken_by_a_case() -> None:
    broken = {rule for *_, rules in CASES for rule in rules.split()}
    broken |= {said[2:] for case in WEIGHED for said in case["reports"]}
    broken |= {"file-name", "file-symlink", "file-writable", "file-bom", "doubled-key"}
    broken |= {"legacy-draft"}  # in the files of test_check.py
    broken |= {"server-unknown", "device-gone", "device-ip-stale", "hccn-conf-stale"}
    broken |= {"super-device-stale", "level-stale"}  # these in test_check.py
    assert broken == set(rules())
