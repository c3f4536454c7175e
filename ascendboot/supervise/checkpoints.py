"""Checkpoints of a job: which are complete on the nodes, and which one it resumes from."""

from __future__ import annotations

import json
import math
import posixpath
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

from ascendboot.errors import excerpt
from ascendboot.facts.query import Fact, Sections, of_sections
from ascendboot.model.cluster import CheckpointKind, CheckpointRules
from ascendboot.model.names import counted, fold
from ascendboot.templates import script
from ascendboot.transport.api import read_script
from ascendboot.value import Value, field

SCRIPT: Final = script("supervise-checkpoints.sh")
MOST_ENTRIES = 10_000
"""How many entries of a folder the script lists."""
_ENTRY = r"([a-zA-Z]) ([0-9]+) (-?[0-9]+(?:\.[0-9]+)?) \./(.+)"
_MOST_NOTES = 3


class Entry(Value):
    """A file or folder; `path` is relative to the folder of checkpoints."""

    path: str
    is_folder: bool
    size: int
    """In bytes."""
    modified: float
    """Seconds since the epoch, by the clock of the node or its file server."""


class Listing(Value, dict=True):
    """What one node sees of the folder of checkpoints; empty if there is no such folder."""

    entries: tuple[Entry, ...] = ()
    markers: Mapping[str, str] = field(default_factory=dict)
    """The content of marker files, by name."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why a marker could not be read, by name."""
    is_cut: bool = False
    """Whether there are more entries than the script lists."""

    def top(self, *, folders: bool) -> list[Entry]:
        """The files, or the folders, that are in no other folder."""
        return [e for e in self.entries if "/" not in e.path and e.is_folder == folders]

    def files_below(self, folder: str) -> Sequence[Entry]:
        """The files at any depth below a folder that is in no other."""
        return self._files.get(folder, ())

    @cached_property
    def _files(self) -> dict[str, list[Entry]]:
        files: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if not entry.is_folder and "/" in entry.path:
                files[entry.path.partition("/")[0]].append(entry)
        return files


class Saved(Value):
    """A checkpoint that is complete as far as one node sees it."""

    step: int
    path: str
    """What a script needs to load it: a file, the prefix of files, or a folder."""
    ranks: frozenset[tuple[int, ...]] = frozenset()
    """The ranks whose files are here, if each rank saves its own part."""


class Unusable(Value):
    """A checkpoint that no job may resume from."""

    step: int | None
    """None: its name has no step."""
    path: str
    why: str
    """Completes `PATH `."""


class Checkpoint(Value):
    """A complete checkpoint, and the nodes that have it."""

    step: int
    path: str
    nodes: tuple[str, ...]


class Found(Value):
    """The checkpoint to resume from, if there is one, and notes on newer ones for the operator."""

    checkpoint: Checkpoint | None
    notes: tuple[str, ...] = ()


Seen: TypeAlias = Iterator[Saved | Unusable]


def checkpoint_query(rules: CheckpointRules) -> Fact[Listing]:
    """The query of one node's workload side for its `Listing`."""
    command = read_script(
        SCRIPT, rules.kind, rules.dir, purpose="list the checkpoints", timeout_s=20.0
    )
    return of_sections(command, parse_listing)


def parse_listing(sections: Sections) -> Listing:
    """The listing that the script printed."""
    if sections.text("folder") == "absent":
        return Listing()
    rows = sections.rows("files", _ENTRY, "type, size, time and path of an entry")
    named = {name.partition("/")[2]: s for name, s in sections.items() if name.startswith("marker")}
    return Listing(
        tuple(Entry(path, kind == "d", int(n), float(at)) for kind, n, at, path in rows),
        {name: section.text for name, section in named.items() if section.exit_code == 0},
        {name: section.text for name, section in named.items() if section.exit_code},
        sections.text("state") == "cut",
    )


def newest(
    listings: Mapping[str, Listing],
    rules: CheckpointRules,
    *,
    needed: Collection[str] | None = None,
    lost: Collection[str] = (),
) -> Found:
    """The newest complete checkpoint that a job on the `needed` nodes can load.

    `listings` may have the last known listing of lost nodes; it only serves to name what they had.
    On a shared folder one node's listing is enough. On local folders every needed node, by default
    all listed ones that are not lost, must have the checkpoint; one without a listing has none.
    """
    living = {name: listing for name, listing in listings.items() if name not in lost}
    saved: _Saved = defaultdict(dict)
    unusable: dict[Unusable, list[str]] = defaultdict(list)
    for name, listing in listings.items():
        for found in FINDERS[rules.kind](listing, rules):
            if isinstance(found, Saved):
                saved[found.step][name] = found
            elif name in living:
                unusable[found].append(name)
    wanted = tuple(living if needed is None else needed)
    best = _newest(saved, living, wanted, rules)
    newer = sorted((step for step in saved if best is None or step > best.step), reverse=True)
    later = {step: saved[step] for step in newer}
    notes = () if rules.shared else _notes_on_local(later, wanted, lost, best, rules)
    notes = notes or _notes_on_parts(later, living, rules)
    notes += _notes_on_unusable(unusable, best)
    notes += _notes_on_megatron(living, rules, best)
    for name in (name for name, listing in living.items() if listing.is_cut):
        words = f"holds more than {MOST_ENTRIES:,} entries, and only the highest names were read"
        notes += (f"{name}: {rules.dir} {words}; remove old checkpoints",)
    return Found(best, notes)


def resume_words(rules: CheckpointRules, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The words of `resume_arg` for a script's command line, with {path} and {step} filled in."""
    filled = {"path": checkpoint.path, "step": str(checkpoint.step)}
    return tuple(
        re.sub(r"\{(path|step)\}", lambda name: filled[name[1]], word)
        for word in shlex.split(rules.resume_arg or "")
    )


_Saved: TypeAlias = dict[int, dict[str, Saved]]
"""What each node has of each step."""


def _newest(
    saved: _Saved, living: Collection[str], wanted: Sequence[str], rules: CheckpointRules
) -> Checkpoint | None:
    """The newest step that one node has on a shared folder, or all `wanted` on local ones."""
    for step in sorted(saved, reverse=True):
        parts = {name: part for name, part in saved[step].items() if name in living}
        if rules.shared:
            having = [name for name, part in parts.items() if not _lacks([part], rules)]
        else:
            is_whole = all(name in parts for name in wanted)
            having = [*wanted] if is_whole and not _lacks([parts[n] for n in wanted], rules) else []
        if having:
            return Checkpoint(step, parts[having[0]].path, tuple(having))
    return None


def _lacks(parts: Iterable[Saved], rules: CheckpointRules) -> str:
    """Why these are not the parts of all ranks; empty if they are, or if each is enough."""
    ranks = frozenset(rank for part in parts for rank in part.ranks)
    if not ranks or (rules.kind == "mindspore" and rules.reshardable):
        return ""
    sizes = [max(numbers) + 1 for numbers in zip(*ranks, strict=False)]
    least = rules.model_parts or 1 if rules.kind == "megatron" else 1
    expected = max(math.prod(sizes), least)
    if len(ranks) >= expected:
        return ""
    return f"has the parts of {counted(len(ranks), 'rank')}, and {expected} are needed"


def _notes_on_local(
    later: _Saved,
    wanted: Sequence[str],
    lost: Collection[str],
    best: Checkpoint | None,
    rules: CheckpointRules,
) -> tuple[str, ...]:
    """The newest step that left with lost nodes, or that some needed nodes do not have."""
    left = f"the newest that is left is step {best.step}" if best else "none is left"
    for step, parts in later.items():
        gone = [name for name in parts if name in lost]
        living = [name for name in parts if name not in lost]
        if gone and (not living or _lacks([parts[name] for name in living], rules)):
            noun = "its folder is" if len(gone) == 1 else "their folders are"
            return (f"step {step} died with {fold(gone)} ({noun} local); {left}",)
        absent = [name for name in wanted if name not in living]
        if living and absent:
            every = f"every node has step {best.step}" if best else "no step is on every node"
            return (f"step {step} is not complete on {fold(absent)}; {every}",)
    return ()


def _notes_on_unusable(
    nodes: Mapping[Unusable, Sequence[str]], best: Checkpoint | None
) -> tuple[str, ...]:
    """The newest checkpoints that were passed over, each with the nodes that see it so."""
    later = (found for found in nodes if best is None or (found.step or 0) > best.step)
    order = sorted(later, key=lambda found: (-1 if found.step is None else found.step, found.path))
    notes = [f"{fold(nodes[found])}: {found.path} {found.why}" for found in reversed(order)]
    more = len(notes) - _MOST_NOTES
    rest = [f"and {more} more checkpoints cannot be used"] if more > 0 else []
    return (*notes[:_MOST_NOTES], *rest)


def _notes_on_parts(
    later: _Saved, living: Collection[str], rules: CheckpointRules
) -> tuple[str, ...]:
    """The newest step of which all nodes together lack the parts of some ranks."""
    for step, of in later.items():
        parts = {name: part for name, part in of.items() if name in living}
        if why := _lacks(parts.values(), rules):
            path = next(iter(parts.values())).path
            return (f"{fold(parts)}: {path} {why} for step {step}",)
    return ()


def _notes_on_megatron(
    living: Mapping[str, Listing], rules: CheckpointRules, best: Checkpoint | None
) -> tuple[str, ...]:
    """Megatron loads what its marker names, whatever is chosen here."""
    if rules.kind != "megatron" or best is None or "{step}" in (rules.resume_arg or ""):
        return ()
    named = {of.markers.get(_TRACKER, "").strip() for of in living.values()} - {""}
    if named <= {str(best.step)}:
        return ()
    words = f"Megatron loads step {', '.join(sorted(named))}, which {_TRACKER} names"
    return (f"{words}; add --ckpt-step {{step}} to checkpoint.resume_arg",)


# ------------------------------------------------------------------------------------- Megatron

_STEP = re.compile("[0-9]{1,18}")
_TRACKER = "latest_checkpointed_iteration.txt"
_ITERATION = re.compile(r"iter_([0-9]{7,})")
_RANK_FOLDER = re.compile(r"mp_rank_([0-9]+(?:_[0-9]+)*)")
_DISTRIBUTED = ("metadata.json", "common.pt", ".metadata")


def find_megatron(listing: Listing, rules: CheckpointRules) -> Seen:
    """Folders `iter_NNNNNNN` not newer than the tracker file, with the files of their ranks.

    As Megatron-LM (core 0.12) saves: the tracker is written when all ranks have saved. The path is
    the folder of all checkpoints, which `--load` takes.
    """
    without = f"may be incomplete: there is no {_TRACKER}; Megatron writes it when all ranks"
    text, trouble = _marker(listing, _TRACKER, f"{without} have saved")
    if not trouble and not _STEP.fullmatch(text.strip()):
        seen = excerpt(text.strip())
        trouble = f'cannot be judged: {_TRACKER} holds "{seen}" and no number'
    limit = -1 if trouble else int(text)
    for folder in listing.top(folders=True):
        match = _ITERATION.fullmatch(folder.path)
        if match is None:
            continue
        step, path = int(match[1]), f"{rules.dir}/{folder.path}"
        files = listing.files_below(folder.path)
        folders = {file.path.split("/")[1] for file in files if file.path.count("/") > 1}
        ranks = [rank for rank in map(_RANK_FOLDER.fullmatch, folders) if rank]
        why = trouble or _newer(step, limit, _TRACKER) or _empty(files)
        why = why or _why_not_iteration(folder.path, files, has_ranks=bool(ranks))
        numbers = frozenset(tuple(map(int, rank[1].split("_"))) for rank in ranks)
        yield Unusable(step, path, why) if why else Saved(step, rules.dir, numbers)


def _why_not_iteration(folder: str, files: Sequence[Entry], *, has_ranks: bool) -> str:
    names = {file.path.removeprefix(f"{folder}/") for file in files}
    if any(name.endswith(".distcp") or name in _DISTRIBUTED for name in names):
        wanted = _DISTRIBUTED if any(n.endswith(".distcp") for n in names) else _DISTRIBUTED[:2]
        missing = [name for name in wanted if name not in names]
        return f"is not complete: {', '.join(missing)} is missing" if missing else ""
    return "" if has_ranks else "is not complete: it has no files of ranks"


def _marker(listing: Listing, name: str, without: str) -> tuple[str, str]:
    """The content of a marker file, or why there is none: `without`, or it cannot be read."""
    if name in listing.unreadable:
        return "", f"cannot be judged: {listing.unreadable[name]}"
    return listing.markers.get(name, ""), "" if name in listing.markers else without


def _newer(step: int, limit: int, marker: str) -> str:
    newer = f"may be incomplete: it is newer than step {limit}, which {marker} names"
    return newer if step > limit else ""


def _empty(files: Iterable[Entry]) -> str:
    empty = next((file.path for file in files if not file.size), None)
    return f"is not complete: {empty} is empty" if empty else ""


# ----------------------------------------------------------------------------------- TensorFlow

_STATE = "checkpoint"
_STATE_PATH = re.compile(r'^[ \t]*model_checkpoint_path:[ \t]*"([^"\\\n]*)"[ \t]*$', re.MULTILINE)
_NUMBERED = re.compile(r"(.+)-([0-9]{1,18})")
_SHARD = re.compile(r"(.+)\.data-[0-9]{5}-of-([0-9]{5})")


def find_tensorflow(listing: Listing, rules: CheckpointRules) -> Seen:
    """Checkpoints `NAME-STEP` not newer than the one that the file `checkpoint` names.

    Complete are those with `.index` and all `.data` shards, as TensorFlow's Saver writes them. If
    Rec SDK TensorFlow keeps embedding tables beside (`sparse-NAME-STEP`), they must be there, too.
    """
    files = {file.path: file.size for file in listing.top(folders=False)}
    counts: dict[str, int] = defaultdict(int)
    for shard in filter(None, map(_SHARD.fullmatch, files)):
        counts[shard[1]] = max(counts[shard[1]], int(shard[2]))
    tables = {folder.path for folder in listing.top(folders=True)}
    without = f"may be incomplete: there is no file {_STATE}; TensorFlow writes it after the others"
    text, trouble = _marker(listing, _STATE, without)
    named = _STATE_PATH.search(text)
    last = _NUMBERED.fullmatch(posixpath.basename(named[1])) if named else None
    if last is None and not trouble:
        first = excerpt(text.strip().split("\n")[0])
        trouble = f'cannot be judged: {_STATE} begins "{first}" and names no NAME-STEP'
    stem, limit = (last[1], int(last[2])) if last else ("", -1)
    has_tables = any(re.fullmatch(rf"sparse-{re.escape(stem)}-[0-9]+", name) for name in tables)
    for name in files:
        match = _NUMBERED.fullmatch(name.removesuffix(".index"))
        if match is None or not name.endswith(".index") or (stem and match[1] != stem):
            continue
        step, path = int(match[2]), f"{rules.dir}/{match[0]}"
        why = trouble or _newer(step, limit, _STATE) or _why_not_shards(match[0], counts, files)
        if has_tables and not why and f"sparse-{match[0]}" not in tables:
            why = f"is not complete: sparse-{match[0]} is missing"
        yield Unusable(step, path, why) if why else Saved(step, path)


def _why_not_shards(name: str, counts: Mapping[str, int], files: Mapping[str, int]) -> str:
    count = counts.get(name, 0)
    if not count:
        return f"is not complete: {name}.data-* is missing"
    shards = (f"{name}.data-{number:05d}-of-{count:05d}" for number in range(count))
    for wanted in (f"{name}.index", *shards):
        if wanted not in files:
            return f"is not complete: {wanted} is missing"
        if not files[wanted]:
            return f"is not complete: {wanted} is empty"
    return ""


# ---------------------------------------------------------------------------------------- torch

_TORCH = (".pt", ".pth")
_PARTS = (*_TORCH, ".distcp", ".bin", ".safetensors")
_TEMPORARY = re.compile(
    r"[.~].*|.*~|.*\.(new|part)|(.*[._-])?(tmp|temp|partial|incomplete)([._-].*)?"
)
_AFTER_WORD = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)[-_=]?([0-9]+)")
_BY_ITSELF = re.compile(r"(?:^|[-_.=])([0-9]+)(?=$|[-_.])")
_RANK = re.compile(r"rank[-_=]?([0-9]+)")


def find_torch(listing: Listing, rules: CheckpointRules) -> Seen:
    """Files `*.pt`, `*.pth` and folders of such, by the step in their name.

    A script must write beside and rename, or add `NAME.done` (`.done` in a folder) when it has
    saved. Once there is one such marker, checkpoints without it do not count.
    """
    found: dict[int, dict[str, str]] = defaultdict(dict)
    done = _done(listing)
    for entry in listing.top(folders=False) + listing.top(folders=True):
        why = _why_not_torch(entry, listing)
        if why is None:
            continue
        if done and not why and entry.path not in done:
            why = "may be incomplete: others have a .done marker, and it has none"
        # The number after a word such as `step`, else the last one that stands by itself.
        plain = _RANK.sub("", entry.path.lower())
        if numbers := _AFTER_WORD.findall(plain) or _BY_ITSELF.findall(plain):
            found[int(numbers[-1])][entry.path] = why
        else:
            where = f"{rules.dir}/{entry.path}"
            yield Unusable(None, where, "has no step in its name; save it as NAME-STEP.pt")
    for step, of in found.items():
        yield _together(step, of, _RANK, rules)


def _together(
    step: int, of: Mapping[str, str], rank_form: re.Pattern[str], rules: CheckpointRules
) -> Saved | Unusable:
    """One checkpoint of the files of one step, by path with why not; each rank may have its own."""
    for name, why in of.items():
        if why:
            return Unusable(step, f"{rules.dir}/{name}", why)
    ranks = frozenset((int(rank[1]),) for name in of if (rank := rank_form.search(name)))
    path = rules.dir if len(of) > 1 else f"{rules.dir}/{next(iter(of))}"
    return Saved(step, path, ranks)


def _done(listing: Listing) -> set[str]:
    """The checkpoints that have a marker: `NAME.pt.done`, `NAME.done`, or `.done` in a folder."""
    names = {entry.path for entry in listing.entries if not entry.is_folder}
    inside = {posixpath.dirname(name) for name in names if posixpath.basename(name) == ".done"}
    marked = {name.removesuffix(".done") for name in names if name.endswith(".done")}
    stems = {name for name in names if posixpath.splitext(name)[0] in marked}
    return {path for path in inside | marked | stems if path and "/" not in path}


def _why_not_torch(entry: Entry, listing: Listing) -> str | None:
    """Why it is not complete; empty if it is, None if it is no checkpoint at all."""
    among = listing.files_below(entry.path) if entry.is_folder else [entry]
    files = [f for f in among if f.path.endswith(_PARTS if entry.is_folder else _TORCH)]
    if not files:
        return None
    names = [entry.path, *(posixpath.basename(file.path) for file in files)]
    temporary = next((name for name in names if _TEMPORARY.fullmatch(name)), None)
    if temporary:
        return f"is not complete: {temporary} is a temporary name"
    if any(file.path.endswith(".distcp") for file in files):
        metadata = f"{entry.path}/.metadata"
        if metadata not in {file.path for file in listing.files_below(entry.path)}:
            return f"is not complete: {metadata} is missing"
    return _empty(files)


# ------------------------------------------------------------------------------------ MindSpore

_EPOCH_STEP = re.compile(r"(?:(.*)/)?([^/]+)-([0-9]+)_([0-9]+)\.ckpt")
_OF_RANK = re.compile(r"rank_([0-9]+)")


def find_mindspore(listing: Listing, rules: CheckpointRules) -> Seen:
    """Files `NAME-EPOCH_STEP.ckpt`, also one in each folder `rank_N`, that are not empty.

    As MindSpore's ModelCheckpoint (2.2) names them; STEP counts within the epoch. The step of the
    job is computed with the highest such STEP as the length of an epoch. A `NAME-graph.meta` in the
    same folder must not be empty.
    """
    files = {entry.path: entry for entry in listing.entries if not entry.is_folder}
    matches = [match for path in files if (match := _EPOCH_STEP.fullmatch(path))]
    length = max((int(match[4]) for match in matches), default=0)
    of_step: dict[int, dict[str, re.Match[str]]] = defaultdict(dict)
    for match in sorted(matches, key=lambda match: files[match[0]].modified):
        of_step[(int(match[3]) - 1) * length + int(match[4])][match[1] or ""] = match
    for step, of in of_step.items():
        why = {}
        for match in of.values():
            graph = posixpath.join(match[1] or "", f"{match[2]}-graph.meta")
            why[match[0]] = _empty(files[name] for name in (match[0], graph) if name in files)
        yield _together(step, why, _OF_RANK, rules)


# ------------------------------------------------------------------------------------- manifest

_LATEST = "LATEST.json"
_OF_STEP = re.compile(r"step-([0-9]+)\.json")


def find_manifest(listing: Listing, rules: CheckpointRules) -> Seen:
    """Manifests `step-N.json` not newer than `LATEST.json`, with files of the stated sizes.

    `examples/checkpoint_manifest.py` writes both. The path is that of the first file.
    """
    names = {**listing.markers, **listing.unreadable}
    if not names:
        return
    latest = _manifest(listing, _LATEST)
    limit = -1 if isinstance(latest, str) else latest[0]
    seen: set[int] = set()
    for name in (_LATEST, *filter(_OF_STEP.fullmatch, names)):
        made = _manifest(listing, name)
        match = _OF_STEP.fullmatch(name)
        path = f"{rules.dir}/{name}"
        if isinstance(made, str):
            yield Unusable(int(match[1]) if match else None, path, made)
            continue
        step, files = made
        if step in seen:
            continue
        seen.add(step)
        sizes = {entry.path: entry.size for entry in listing.entries if not entry.is_folder}
        why = _newer(step, limit, _LATEST) or _why_not_sizes(files, sizes)
        first = f"{rules.dir}/{next(iter(files))}"
        yield Unusable(step, path, why) if why else Saved(step, first)


def _manifest(listing: Listing, name: str) -> tuple[int, dict[str, int]] | str:
    """The step of a manifest and its files with their sizes in bytes, or why it cannot be used."""
    without = "is missing; mark_checkpoint writes it when all files are saved"
    text, why = _marker(listing, name, without)
    if why:
        return why
    try:
        made: Any = json.loads(text)
        files = {posixpath.normpath(str(f["path"])): int(f["bytes"]) for f in made["files"]}
        step = made["step"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        return f"is not a manifest: {type(error).__name__} {excerpt(str(error))}"
    if type(step) is not int or step < 0 or not files:
        return "is not a manifest: it states no step from 0, or no file"
    return step, files


def _why_not_sizes(files: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    for name, size in files.items():
        if name not in sizes:
            return f"is not complete: {name} is missing"
        if sizes[name] != size:
            return f"is not complete: {name} has {sizes[name]} bytes, and {size} are stated"
    return ""


FINDERS: Final[Mapping[CheckpointKind, Callable[[Listing, CheckpointRules], Seen]]] = {
    "megatron": find_megatron,
    "tensorflow": find_tensorflow,
    "torch": find_torch,
    "mindspore": find_mindspore,
    "manifest": find_manifest,
}
