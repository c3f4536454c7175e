"""What the judge says about the code on the nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.files import CodeTree, Entry
from tests.unit.checks import well

THERE = Answered("readable")
ABSENT = Answered("absent")
LOCKED = Answered("unreadable")
WISH = replace(well.TWO, code_path="/work")
EQUAL = (
    "Make the folders equal, leave results out with `code.exclude`, or let setup send the code: "
    "`code.source`."
)


def tree(**files: str) -> Answered[CodeTree]:
    return Answered(CodeTree(entries={n.replace("_", "."): Entry(v) for n, v in files.items()}))


def judged(first: Any, *others: Any, wish: Any = WISH) -> list[str]:
    facts = [
        well.facts(n, code=THERE, code_tree=found) for n, found in enumerate((first, *others), 1)
    ]
    nodes = tuple(well.node(n) for n in range(1, len(facts) + 1))
    return well.judged(replace(wish, nodes=nodes), *facts)


def test_equal_trees_are_well() -> None:
    assert judged(tree(main_py="a"), tree(main_py="a")) == []


def test_a_node_that_differs_is_named_with_its_first_files() -> None:
    good = tree(a_py="1", b_py="1", main_py="1", ckpt="1")
    words = "a.py differs from lab-1, b.py differs from lab-1; 1 more"
    assert judged(good, tree(a_py="2", b_py="2", main_py="2", ckpt="1"), good) == [
        f"code-differs error lab-2: {words}. {EQUAL}"
    ]
    assert judged(good, tree(a_py="1", main_py="1")) == [
        f"code-differs error lab-2: b.py is missing, which lab-1 has. {EQUAL}",
        (
            "code-others-differ warning lab-2: ckpt is missing, which lab-1 has. If jobs read it, "
            "make it equal; if a job left it, leave it out with `code.exclude`."
        ),
    ]


def test_what_jobs_left_where_they_ran_is_no_error() -> None:
    first, second = tree(main_py="a", fusion_result_json="1"), tree(main_py="a", rank_log="2")
    [found] = judged(first, second)
    assert found.startswith("code-others-differ warning lab-2: fusion.result.json is missing")
    equal = {"main_py": "a"}
    [found] = judged(tree(**equal, train_log="1"), tree(**equal, train_log="2"))
    assert found.startswith("code-others-differ warning lab-2: train.log differs from lab-1.")


def test_nodes_that_differ_alike_are_folded() -> None:
    other = tree(main_py="b")
    assert judged(tree(main_py="a"), other, other) == [
        f"code-differs error lab-[2-3]: main.py differs from lab-1. {EQUAL}"
    ]


def test_a_tree_that_is_too_much_is_not_compared() -> None:
    full = Answered(CodeTree(excess=(10001, 5 * 1024**2)))
    words = (
        "/work was not compared: it holds more than 10000 files or 512 MiB (10001 files and 5 MiB "
        "were counted). Leave data and results out with `code.exclude`."
    )
    assert judged(tree(main_py="a"), full) == [f"code-too-much warning lab-2: {words}"]
    assert judged(full, tree(main_py="a")) == [f"code-too-much warning lab-1: {words}"]


def test_where_setup_sends_the_code_it_need_not_be_there_but_must_be_readable() -> None:
    sent = replace(WISH, code_source="./here")
    different = (tree(main_py="a"), tree(main_py="b"))
    assert judged(*different, wish=sent) == []
    remedy = (
        "Put the code there on every node, have setup send it (`code.source`), or leave `code` "
        "out of the inventory."
    )
    for wish, code, wanted in (
        (WISH, ABSENT, ["code-missing error lab-2: the code path /work does not exist. " + remedy]),
        (sent, ABSENT, []),
        (sent, LOCKED, ["code-missing error lab-2: the code path /work cannot be read. " + remedy]),
    ):
        facts = well.facts(1, code=THERE), well.facts(2, code=code)
        assert well.judged(wish, *facts) == wanted
    lost = Unanswered("failed", "could not look at the files of /work: find is not on PATH")
    assert judged(lost, tree()) == [f"code-unknown error lab-1: {lost.message}."]


def test_what_the_primary_could_not_send_is_named() -> None:
    wish = replace(WISH, code_source="primary")
    odd = CodeTree(
        entries={
            "a\nb": Entry("1"),
            "link": Entry(target="../x"),
            "main.py": Entry("1"),
            "secret": Entry(""),
        }
    )
    words = (
        "a\\nb has a name that cannot be sent; rename it, link is a symbolic link that leads out "
        "of the tree, to ../x; 1 more. Remove it, or leave it out with `code.exclude`."
    )
    assert judged(Answered(odd), Answered(CodeTree()), wish=wish) == [
        f"code-not-sent error lab-1: {words}"
    ]
    facts = well.facts(1, code=ABSENT), well.facts(2, code=ABSENT)
    assert [finding.split(":")[0] for finding in well.judged(wish, *facts)] == [
        "code-missing error lab-1"
    ]


def test_code_that_is_to_be_sent_is_awaited_also_where_the_primary_is_unreachable() -> None:
    wish = replace(WISH, code_source="primary", nodes=(well.node(2),))
    assert well.judged(wish, well.facts(2, code=ABSENT)) == []
