"""The table of known errors, and entries of the operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascendboot.errors import AscendbootError
from ascendboot.jobs import error_codes

FAULTDIAG = json.loads(
    (Path(__file__).parents[2] / "data/knowledge/faultdiag.json").read_text(encoding="utf-8")
)
ALL = (*error_codes.known_errors().entries, *error_codes.known_errors().of_launcher)
OWN = """\
- id: site-proxy
  product: Proxy
  text: [[proxy refused, by policy]]
  meaning: the proxy of this site refuses the node
  remedy: unset http_proxy
  source: our network team
  samples: ['HTTP: proxy refused 192.0.2.1 by policy 7']
  others: [by policy 7 the proxy refused]
"""


def test_every_entry_explains_its_samples_and_not_the_others() -> None:
    assert list(error_codes.contradicted_samples(ALL)) == []


def test_every_entry_has_its_own_id() -> None:
    ids = [entry.id for entry in ALL]
    assert sorted(id_ for id_ in set(ids) if ids.count(id_) > 1) == []


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.id)
def test_no_earlier_entry_takes_the_first_sample_away(entry: error_codes.KnownText) -> None:
    sample = entry.samples[0]
    if entry in error_codes.known_errors().entries:
        assert error_codes.known_words(sample) is entry
    else:
        assert error_codes.known_of_launcher(["-----", sample, "more"]) == (sample, entry)


def test_at_least_95_percent_of_the_texts_of_faultdiag_are_known() -> None:
    unknown = [
        id_
        for id_, forms in FAULTDIAG.items()
        if not all(error_codes.known_words(" .. ".join(form)) for form in forms)
    ]
    assert len(unknown) <= 0.05 * len(FAULTDIAG), unknown


@pytest.mark.parametrize(
    ("line", "id_"),
    [
        ("hccl interface return err x.cc:538, retcode: 1", "hccl-test-1"),
        ("hccl interface return err x.cc:538, retcode: 15", "hccl-test-15"),
        ("[ERROR] (PID:7) ERR02200 DIST call hccl api failed.", "torch-npu-hccl"),
        ("kernel: Out of memory: Killed process 7012 (python3)", "linux-oom"),
        ("python3[71]: segfault at 0 ip 00007f sp 00007f error 4 in a.so", "linux-segfault"),
        ("step 7 loss 0.31", None),
        ("INFO waited for rank 3", None),
    ],
)
def test_which_entry_explains_a_line(line: str, id_: str | None) -> None:
    known = error_codes.known_words(line)
    assert (known and known.id) == id_


def test_texts_in_a_list_follow_each_other_in_one_line() -> None:
    entry = error_codes.known_errors().entries[0].model_copy(update={"text": (("one", "two"),)})
    lines = ("one, then two", "two, then one", "one")
    assert [entry.explains(line) for line in lines] == [True, False, False]
    assert error_codes.known_words("Tried to allocate 2 GiB\non NPU 3") is None


def test_an_operator_adds_entries(tmp_path: Path) -> None:
    path = tmp_path / "known-errors.yaml"
    assert error_codes.own_entries(path) == ()
    path.write_text(OWN)
    (entry,) = error_codes.own_entries(path)
    assert (entry.id, entry.explains("proxy refused me by policy")) == ("site-proxy", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            OWN.replace("proxy refused 192.0.2.1 by", "proxy accepted by"),
            "does not explain its sample",
        ),
        (
            OWN.replace("others: [by policy 7 the", "others: [proxy refused by policy,"),
            "its others",
        ),
        (OWN.replace("  remedy: unset http_proxy\n", ""), "entry 0.remedy: Field required"),
        (OWN.replace("- id:", "- name: x\n  id:"), "Extra inputs"),
        (OWN.replace("[[proxy refused, by policy]]", "['x']"), "at least 2 characters"),
        ("a: [", "correct the YAML"),
        ("- *x\n", "aliases"),
        ("- &x [a]\n- [*x, *x]\n", "aliases"),
        ("[" * 500, "deeply nested"),
        ("[" * 500_000, "deeply nested|nesting depth"),  # the latter since PyYAML 6.0.4
        ("x" * (1 << 21), "larger than 1 MiB"),
    ],
)
def test_an_invalid_file_of_an_operator_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "known-errors.yaml"
    path.write_text(text)
    with pytest.raises(AscendbootError, match=words) as refused:
        error_codes.own_entries(path)
    assert str(refused.value).startswith(str(path))


def test_a_text_is_never_an_expression(tmp_path: Path) -> None:
    """A catastrophic expression takes no time: it is compared as it is."""
    path = tmp_path / "known-errors.yaml"
    path.write_text(OWN.replace("[[proxy refused, by policy]]", "['(a+)+$', proxy refused 192]"))
    (entry,) = error_codes.own_entries(path)
    assert not entry.explains("a" * 100_000 + "!")
    assert entry.explains("x (a+)+$ y")
