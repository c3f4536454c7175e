"""Checkpoints: which are complete in a folder, which is newest over all nodes, and the notes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.facts.query import Answered, Unanswered, answer_to
from ascendboot.model.cluster import CheckpointKind, CheckpointRules
from ascendboot.supervise.checkpoints import (
    FINDERS,
    Checkpoint,
    Entry,
    Found,
    Listing,
    Saved,
    Unusable,
    checkpoint_query,
    newest,
    resume_words,
)
from ascendboot.value import replace
from tests.here import Here

D = "/ckpt"
TRACKER = "latest_checkpointed_iteration.txt"
ITER_400, ITER_380 = "iter_0000400", "iter_0000380"

NEWER = "incomplete: it is newer than step 380"
ADD = "add --ckpt-step {step} to checkpoint.resume_arg"
CUT = "and only the highest names were read; remove old checkpoints"


def rules(kind: CheckpointKind, **more: Any) -> CheckpointRules:
    return CheckpointRules(kind=kind, dir=D, **{"shared": True, **more})


def listing(*names: str, markers: Mapping[str, str] | None = None) -> Listing:
    """A listing of files, `NAME` of 1 byte or `NAME=SIZE`, with the folders above them."""
    sizes = {name: int(size or 1) for name, _, size in (text.partition("=") for text in names)}
    sizes |= {name: len(text) for name, text in (markers or {}).items()}
    folders = {str(above) for name in sizes for above in Path(name).parents} - {"."}
    entries = [Entry(name, is_folder=True, size=4096, modified=0.0) for name in sorted(folders)]
    entries += [
        Entry(name, is_folder=False, size=size, modified=float(at))
        for at, (name, size) in enumerate(sizes.items())
    ]
    return Listing(tuple(entries), markers or {})


def seen(kind: CheckpointKind, of: Listing, **more: Any) -> list[Saved | Unusable]:
    return sorted(FINDERS[kind](of, rules(kind, **more)), key=lambda found: found.step or -1)


def step_of(kind: CheckpointKind, of: Listing, **more: Any) -> int | None:
    """The step that a job resumes from, where one node sees this."""
    found = newest({"n1": of}, rules(kind, **more)).checkpoint
    return found.step if found else None


# ------------------------------------------------------------------------------------- Megatron


def megatron(*folders: str, marker: str | None = "400\n", parts: int = 2) -> Listing:
    names = [f"{f}/mp_rank_{n:02d}/model_optim_rng.pt" for f in folders for n in range(parts)]
    return listing(*names, markers={} if marker is None else {TRACKER: marker})


def test_a_megatron_folder_newer_than_the_marker_is_passed_over() -> None:
    found = newest({"n1": megatron(ITER_380, ITER_400, marker="380")}, rules("megatron"))
    assert found == Found(
        Checkpoint(380, D, ("n1",)), (f"n1: {D}/{ITER_400} may be {NEWER}, which {TRACKER} names",)
    )


@pytest.mark.parametrize("broken", ["model_optim_rng.pt=0", "distrib_optim.pt=0"])
def test_a_step_back_from_an_empty_file_of_megatron_is_told_with_what_it_would_load(
    broken: str,
) -> None:
    of = listing(
        f"{ITER_380}/mp_rank_00/model_optim_rng.pt",
        f"{ITER_400}/mp_rank_00/{broken}",
        markers={TRACKER: "400"},
    )
    found = newest({"n1": of}, rules("megatron", resume_arg="--load {path}"))
    empty = f"{ITER_400}/mp_rank_00/{broken.removesuffix('=0')}"
    assert found.checkpoint == Checkpoint(380, D, ("n1",))
    assert found.notes == (
        f"n1: {D}/{ITER_400} is not complete: {empty} is empty",
        f"Megatron loads step 400, which {TRACKER} names; {ADD}",
    )
    told = newest({"n1": of}, rules("megatron", resume_arg="--load {path} --ckpt-step {step}"))
    assert len(told.notes) == 1


def test_a_missing_rank_folder_of_megatron_is_noticed_among_the_others() -> None:
    names = [f"{ITER_400}/mp_rank_0{tp}_00{pp}/model.pt" for tp in (0, 1) for pp in (0, 1)]
    older = [name.replace(ITER_400, ITER_380) for name in names]
    of = listing(*names[1:], *older, markers={TRACKER: "400"})
    found = newest({"n1": of}, rules("megatron", resume_arg="{path} {step}"))
    assert found.checkpoint == Checkpoint(380, D, ("n1",))
    assert found.notes == (f"n1: {D} has the parts of 3 ranks, and 4 are needed for step 400",)


def test_stated_parallel_sizes_say_how_many_rank_folders_there_must_be() -> None:
    of = megatron(ITER_400, parts=2)
    assert step_of("megatron", of, model_parts=2) == 400
    assert step_of("megatron", of, model_parts=4) is None


def test_a_distributed_megatron_checkpoint_needs_its_metadata() -> None:
    names = ["__0_0.distcp", "common.pt", ".metadata", "metadata.json"]
    whole = [f"{ITER_400}/{name}" for name in names]
    marker = {TRACKER: "400"}
    assert step_of("megatron", listing(*whole, markers=marker)) == 400
    for missing in whole[1:]:
        rest = [name for name in whole if name != missing]
        assert step_of("megatron", listing(*rest, markers=marker)) is None


@pytest.mark.parametrize("marker", [None, "", "release", "4 00", "9" * 5000])
def test_without_a_number_in_the_marker_no_megatron_checkpoint_counts(marker: str | None) -> None:
    found = newest({"n1": megatron(ITER_400, marker=marker)}, rules("megatron"))
    assert found.checkpoint is None
    assert TRACKER in found.notes[0]


# ----------------------------------------------------------------------------------- TensorFlow


def tensorflow(*steps: int, marker: int, without: str = "") -> Listing:
    names = []
    for step in steps:
        stem = f"model.ckpt-{step}"
        data = [f"{stem}.data-{n:05d}-of-00002" for n in (0, 1)]
        names += [f"{stem}.index", f"{stem}.meta", *data]
    state = f'model_checkpoint_path: "model.ckpt-{marker}"\nall_model_checkpoint_paths: "x-9"\n'
    return listing(*(n for n in names if n != without), markers={"checkpoint": state})


def test_tensorflow_resumes_from_the_prefix_that_its_marker_names() -> None:
    assert seen("tensorflow", tensorflow(380, 400, marker=400)) == [
        Saved(380, f"{D}/model.ckpt-380"),
        Saved(400, f"{D}/model.ckpt-400"),
    ]


def test_the_missing_shard_is_named() -> None:
    name = "model.ckpt-400.data-00001-of-00002"
    found = newest({"n1": tensorflow(400, marker=400, without=name)}, rules("tensorflow"))
    assert found == Found(None, (f"n1: {D}/model.ckpt-400 is not complete: {name} is missing",))


def test_the_marker_of_tensorflow_may_hold_an_absolute_path() -> None:
    of = tensorflow(400, marker=400)
    state = 'model_checkpoint_path: "/mnt/elsewhere/model.ckpt-400"\n'
    assert step_of("tensorflow", replace(of, markers={"checkpoint": state})) == 400
    assert step_of("tensorflow", replace(of, markers={"checkpoint": "?"})) is None
    assert step_of("tensorflow", replace(of, markers={})) is None


def test_embedding_tables_of_rec_sdk_belong_to_the_checkpoint() -> None:
    of = tensorflow(380, 400, marker=400)
    tables = listing("sparse-model.ckpt-380/user/key.data").entries
    both = listing("sparse-model.ckpt-380/user/key", "sparse-model.ckpt-400/user/key").entries
    assert step_of("tensorflow", replace(of, entries=of.entries + tables)) == 380
    assert step_of("tensorflow", replace(of, entries=of.entries + both)) == 400


# ---------------------------------------------------------------------------------------- torch


def test_torch_takes_the_highest_step_in_a_final_name() -> None:
    of = listing("model-380.pt", "model-400.pth", "model-420.tmp.pt", ".model-440.pt", "log.txt")
    found = newest({"n1": of}, rules("torch"))
    assert found.checkpoint == Checkpoint(400, f"{D}/model-400.pth", ("n1",))
    assert found.notes == (
        f"n1: {D}/.model-440.pt is not complete: .model-440.pt is a temporary name",
        f"n1: {D}/model-420.tmp.pt is not complete: model-420.tmp.pt is a temporary name",
    )


@pytest.mark.parametrize("name", ["ddp.pt", "resnet50.pt", "net_rank0.pth"])
def test_a_name_without_a_step_is_told_where_nothing_else_is_found(name: str) -> None:
    found = newest({"n1": listing(name, "events.log")}, rules("torch"))
    told = f"n1: {D}/{name} has no step in its name; save it as NAME-STEP.pt"
    assert found == Found(None, (told,))
    assert newest({"n1": listing(name, "m-1.pt")}, rules("torch")).notes == ()


WHOLE = ("step_380/model.pt", "step_380/optimizer.pt")
RANKS = ("model_400_rank0.pt", "model_400_rank1.pt", "model_400_rank3.pt", "model_20_rank0.pt")


@pytest.mark.parametrize(
    ("names", "step"),
    [
        (("model-380.pt", "model-400.pt=0"), 380),
        # Once there is one marker, only what has one counts.
        (("m-380.pt", "m-380.pt.done=0", "m-400.pt"), 380),
        (("m-380.pt", "m-380.done=0", "m-400.pt"), 380),
        (("step_380/a.pt", "step_380/.done", "step_400/a.pt"), 380),
        # All that a folder has must be whole.
        ((*WHOLE, "step_400/model.pt=0"), 380),
        ((*WHOLE, "step_400.tmp/model.pt"), 380),
        ((*WHOLE, "step_400/__0_0.distcp"), 380),
        ((*WHOLE, "step_400/__0_0.distcp", "step_400/.metadata"), 400),
        # The files of ranks are one checkpoint.
        (RANKS, 20),
        ((*RANKS, "model_400_rank2.pt"), 400),
        # Usual names.
        *(((name,), 400) for name in ("400.pt", "m-400.pt", "llama-7b_400.pth", "step400_v2.pt")),
        (("epoch3-step400.pt",), 400),
        (("checkpoint-400/model.safetensors",), 400),
        (("global_step400/mp_rank_00_model_states.pt",), 400),
    ],
)
def test_the_step_that_torch_resumes_from(names: tuple[str, ...], step: int) -> None:
    assert step_of("torch", listing(*names)) == step


@pytest.mark.parametrize("kind", ["megatron", "tensorflow", "torch", "mindspore"])
def test_a_folder_of_ten_thousand_entries_is_read_in_time(kind: CheckpointKind) -> None:
    names = {
        "megatron": [f"iter_{n:07d}/mp_rank_00/model.pt" for n in range(5_000)],
        "tensorflow": [
            f"m-{n // 2}.{('index', 'data-00000-of-00001')[n % 2]}" for n in range(10_000)
        ],
        "torch": [f"step_{n}/model.pt" for n in range(5_000)],
        "mindspore": [f"rank_{n % 8}/m-1_{n // 8}.ckpt" for n in range(10_000)],
    }
    state = {TRACKER: "9999", "checkpoint": 'model_checkpoint_path: "m-9999"'}
    of = listing(*names[kind], markers=state)
    started = time.process_time()
    assert step_of(kind, of) is not None
    assert time.process_time() - started < 2


# ------------------------------------------------------------------------------------ MindSpore


def test_mindspore_counts_epochs_and_steps() -> None:
    of = listing("net-graph.meta", "net-1_100.ckpt", "net-2_50.ckpt", "net-2_100.ckpt=0")
    found = newest({"n1": of}, rules("mindspore"))
    assert found == Found(
        Checkpoint(150, f"{D}/net-2_50.ckpt", ("n1",)),
        (f"n1: {D}/net-2_100.ckpt is not complete: net-2_100.ckpt is empty",),
    )


def test_mindspore_needs_the_files_of_all_ranks_unless_it_is_reshardable() -> None:
    names = [f"rank_{n}/net-1_{step}.ckpt" for n in range(3) for step in (5, 9)]
    assert seen("mindspore", listing(*names))[-1] == Saved(9, D, frozenset({(0,), (1,), (2,)}))
    part = listing(*(name for name in names if name != "rank_1/net-1_9.ckpt"))
    assert step_of("mindspore", part) == 5
    assert step_of("mindspore", part, reshardable=True) == 9


# ------------------------------------------------------------------------------------- manifest


def manifest(step: int, **files: int) -> str:
    listed = [{"path": name, "bytes": size} for name, size in files.items()]
    return json.dumps({"step": step, "files": listed})


def manifests(latest: int, *names: str) -> Listing:
    texts = {f"step-{n}.json": manifest(n, **{f"m-{n}": 5}) for n in (380, 400)}
    return listing(*names, markers={"LATEST.json": texts[f"step-{latest}.json"], **texts})


def test_a_manifest_is_taken_if_all_files_have_their_sizes() -> None:
    of = manifests(400, "m-380=5", "m-400=5")
    assert newest({"n1": of}, rules("manifest")) == Found(Checkpoint(400, f"{D}/m-400", ("n1",)))


@pytest.mark.parametrize(
    ("kind", "of", "step"),
    [
        *(
            ("tensorflow", tensorflow(380, 400, marker=400, without=f"model.ckpt-400.{part}"), 380)
            for part in ("index", "data-00000-of-00002", "data-00001-of-00002")
        ),
        *(("manifest", manifests(400, "m-380=5", *more), 380) for more in ((), ("m-400=4",))),
        ("manifest", manifests(400, "m-380=5", "m-400=0"), 380),
        # None is newer than what the marker names.
        ("tensorflow", tensorflow(380, 400, marker=380), 380),
        ("manifest", manifests(380, "m-380=5", "m-400=5"), 380),
        # The graph is empty.
        ("mindspore", listing("a-graph.meta=0", "a-1_9.ckpt", "b-1_5.ckpt"), 5),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_passed_over(
    kind: CheckpointKind, of: Listing, step: int
) -> None:
    assert step_of(kind, of) == step


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"step": true, "files": []}', '{"files": [{"bytes": Infinity}]}', "[" * 9999],
)
def test_what_is_no_manifest_is_told(text: str) -> None:
    found = newest({"n1": listing(markers={"LATEST.json": text})}, rules("manifest"))
    assert found.checkpoint is None
    assert found.notes[0].startswith(f"n1: {D}/LATEST.json is not a manifest: ")


# ------------------------------------------------------------------------------------ all nodes


def torch(*steps: int) -> Listing:
    return listing(*(f"m-{step}.pt" for step in steps))


LOCAL = rules("torch", shared=False)


def test_on_a_shared_folder_the_listing_of_one_node_is_enough() -> None:
    found = newest({"n1": torch(380), "n2": torch(380, 400)}, rules("torch"))
    assert found == Found(Checkpoint(400, f"{D}/m-400.pt", ("n2",)))


def test_on_local_folders_every_needed_node_must_have_the_step() -> None:
    nodes = {"n1": torch(360, 380, 400), "n2": torch(360, 380), "n3": torch(360)}
    assert newest(nodes, LOCAL, needed=("n1", "n2")) == Found(
        Checkpoint(380, f"{D}/m-380.pt", ("n1", "n2")),
        ("step 400 is not complete on n2; every node has step 380",),
    )
    every = newest(nodes, LOCAL).checkpoint
    assert every == Checkpoint(360, f"{D}/m-360.pt", ("n1", "n2", "n3"))


def test_a_checkpoint_that_only_lost_nodes_had_is_named() -> None:
    nodes = {"atlas-1": torch(380), "atlas-2": torch(380), "atlas-3": torch(380, 400)}
    assert newest(nodes, LOCAL, lost=("atlas-3",)) == Found(
        Checkpoint(380, f"{D}/m-380.pt", ("atlas-1", "atlas-2")),
        ("step 400 died with atlas-3 (its folder is local); the newest that is left is step 380",),
    )


def test_a_lost_node_has_nothing_even_where_it_is_needed() -> None:
    nodes = {"n1": torch(400), "n2": torch(400)}
    assert newest(nodes, LOCAL, needed=("n1", "n2"), lost=("n2",)).checkpoint is None


def test_nothing_is_left_if_the_only_node_that_saved_is_lost() -> None:
    nodes = {"n1": torch(), "n2": torch(400), "n3": torch(400)}
    assert newest(nodes, LOCAL, lost=("n2", "n3")) == Found(
        None, ("step 400 died with n[2-3] (their folders are local); none is left",)
    )


def test_parts_of_a_model_that_left_with_a_node_make_the_step_unusable() -> None:
    parts = [f"{ITER_400}/mp_rank_0{n}/model.pt" for n in (0, 1)]
    nodes = {f"n{n}": listing(part, markers={TRACKER: "400"}) for n, part in enumerate(parts)}
    local = rules("megatron", shared=False)
    assert newest(nodes, local).checkpoint == Checkpoint(400, D, ("n0", "n1"))
    assert newest(nodes, local, lost=("n0",)) == Found(
        None, ("step 400 died with n0 (its folder is local); none is left",)
    )


def test_a_needed_node_without_a_listing_has_no_checkpoint() -> None:
    found = newest({"n1": torch(400)}, LOCAL, needed=("n1", "n2"))
    assert found == Found(None, ("step 400 is not complete on n2; no step is on every node",))


def test_many_unusable_checkpoints_are_counted_not_listed() -> None:
    of = megatron(*(f"iter_{step:07d}" for step in range(1, 21)), marker=None)
    notes = newest({"n1": of}, rules("megatron")).notes
    assert [note.split(" ")[1] for note in notes[:3]] == [
        f"{D}/iter_{step:07d}" for step in (20, 19, 18)
    ]
    assert notes[3:] == ("and 17 more checkpoints cannot be used",)


def test_a_folder_with_too_many_entries_is_told() -> None:
    of = replace(torch(400), is_cut=True)
    assert newest({"n1": of}, rules("torch")).notes == (
        f"n1: {D} holds more than 10,000 entries, {CUT}",
    )


STEPS = st.sets(st.integers(1, 6))


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), STEPS, min_size=1), STEPS)
def test_the_chosen_step_is_the_newest_that_all_have(
    steps: dict[str, set[int]], broken: set[int]
) -> None:
    nodes = {
        name: listing(*(f"m-{step}.pt={int(step not in broken)}" for step in of))
        for name, of in steps.items()
    }
    common = set.intersection(*steps.values()) - broken
    anywhere = set.union(*steps.values()) - broken
    local = newest(nodes, LOCAL).checkpoint
    shared = newest(nodes, rules("torch")).checkpoint
    assert (local.step if local else None) == max(common, default=None)
    assert (shared.step if shared else None) == max(anywhere, default=None)


@pytest.mark.parametrize(
    ("resume_arg", "words"),
    [
        (None, ()),
        ("--load {path}", ("--load", "/a b/c")),
        ("--load={path} --ckpt-step {step}", ("--load=/a b/c", "--ckpt-step", "400")),
        ("'{path} {step}'", ("/a b/c 400",)),
    ],
)
def test_words_of_resume_arg_are_filled_in(resume_arg: str | None, words: tuple[str, ...]) -> None:
    checkpoint = Checkpoint(400, "/a b/c", ("n1",))
    assert resume_words(rules("torch", resume_arg=resume_arg), checkpoint) == words


# ------------------------------------------------------------------------------ the real script


def listed(folder: Path, kind: CheckpointKind, tools: Path, **more: Any) -> Any:
    """The answer of this machine, for the folder `at` or else `folder`."""
    fact = checkpoint_query(CheckpointRules(kind=kind, dir=str(more.get("at", folder))))
    command = fact.command
    for old, new in more.get("changed", {}).items():
        argv = tuple(word.replace(old, new) for word in command.argv)
        command = replace(command, argv=argv)
    result = Here(tools)(command).to(fact.command)
    return answer_to(fact, result)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    return tmp_path / "tools"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A name that a shell would take apart."""
    made = tmp_path / "che ck'%s$(id)points"
    made.mkdir()
    return made


def test_the_script_lists_files_and_markers(folder: Path, tools: Path) -> None:
    put(folder, f"{ITER_400}/mp_rank_00/model%s.pt", "odd name\\n", "two\nlines")
    (folder / "link").symlink_to("/")
    (folder / TRACKER).write_text("400\n")
    answer = listed(folder, "megatron", tools)
    assert isinstance(answer, Answered)
    assert answer.value.markers == {TRACKER: "400"}
    found = {entry.path: (entry.is_folder, entry.size) for entry in answer.value.entries}
    assert {path: size for path, (is_folder, size) in found.items() if not is_folder} == {
        TRACKER: 4,
        "odd name\\n": 1,
        f"{ITER_400}/mp_rank_00/model%s.pt": 1,
    }
    assert newest({"n1": answer.value}, rules("megatron")).checkpoint is not None


def test_a_folder_that_is_not_there_has_no_checkpoints(folder: Path, tools: Path) -> None:
    assert listed(folder, "torch", tools, at=folder / "absent") == Answered(Listing())


@pytest.mark.parametrize(
    ("kind", "marker"), [("tensorflow", "checkpoint"), ("manifest", "step-7.json")]
)
def test_markers_are_read_up_to_64_kib(
    folder: Path, tools: Path, kind: CheckpointKind, marker: str
) -> None:
    (folder / marker).write_text("x" * 65536)
    assert listed(folder, kind, tools).value.markers == {marker: "x" * 65536}
    (folder / marker).write_text("x" * 65537)
    value = listed(folder, kind, tools).value
    assert (value.markers, value.unreadable) == ({}, {marker: f"{marker} is larger than 64 KiB"})


def test_of_too_many_entries_the_highest_names_are_listed(folder: Path, tools: Path) -> None:
    put(folder, *(f"model-{step}.pt" for step in range(95, 111)))
    small = {"most_entries=10000": "most_entries=12"}
    value = listed(folder, "torch", tools, changed=small).value
    assert value.is_cut
    assert sorted(entry.path for entry in value.entries) == sorted(
        f"model-{step}.pt" for step in range(99, 111)
    )


def test_a_file_server_that_does_not_answer_is_not_waited_for(folder: Path, tools: Path) -> None:
    Here(tools).put("find", "exec /bin/sleep 60")
    put(folder, "model-1.pt")
    answer = listed(folder, "torch", tools, changed={"timeout -k 1 5": "timeout -k 1 0.2"})
    assert isinstance(answer, Unanswered)
    assert answer.message == (
        f"could not list the checkpoints: {folder} was not listed within 5 s; does its file "
        "server answer?"
    )


def test_output_of_another_form_is_refused(folder: Path, tools: Path) -> None:
    Here(tools).put("find", "echo surprise")
    answer = listed(folder, "torch", tools)
    assert isinstance(answer, Unanswered)
    assert answer.kind == "not-understood"
