"""The training code: read from its source, sent to a node, compared and removed."""

from __future__ import annotations

import os
import threading
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import InventoryError, NodeError, UsageError
from ascendboot.facts.container import tree_query
from ascendboot.model.files import CodeTree
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup import sync as source_module
from ascendboot.setup.reset import by_kind, leftovers_commands
from ascendboot.setup.sync import CodeSender, Source, Work, read_source
from ascendboot.templates import script
from ascendboot.transport.api import Effect
from ascendboot.value import replace
from tests.here import Here, node_here
from tests.unit.checks import well


class Place:
    """An operator's folder, a node's folder, and the cluster's folder on the node."""

    def __init__(self, folder: Path) -> None:
        self.here, self.there = folder / "here", folder / "srv/code/there"
        self.base = folder / "base"
        for path in (self.here, self.base):
            path.mkdir()
        self.node = node_here()
        self.exclude: tuple[str, ...] = ()
        self.put("main.py", "print()\n", mode=0o755)
        self.put("pkg/model.py", "x = 1\n")
        self.put("keys/user_ca", "never sent")

    def put(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def sending(self, *, deletes: bool = False) -> CodeSender:
        cluster = replace(
            well.TWO,
            code_path=str(self.there),
            code_source=str(self.here),
            code_exclude=self.exclude,
        )
        source = read_source(cluster)
        assert source is not None
        return CodeSender(cluster, source, deletes)

    def look(self, sending: CodeSender) -> CodeTree:
        question = sending.question()
        assert question.command.effect is Effect.READ
        return question.parse(self.node.run(question.command))

    def send(self, *, deletes: bool = False) -> StepResult:
        sending = self.sending(deletes=deletes)
        return sending.sync(self.node, self.look(sending), PurePosixPath(self.base), self.node)

    def files(self) -> dict[str, tuple[str, int]]:
        return {
            str(p.relative_to(self.there)): (p.read_text(), p.stat().st_mode & 0o777)
            for p in sorted(self.there.rglob("*"))
            if p.is_file()
        }

    def reset(self, mode: str = "remove") -> tuple[int, list[str]]:
        """The number of the code's files removed, or to be removed, and those that have changed."""
        text = script("setup-code-remove.sh", mode=mode, b=self.base)
        command, _ = leftovers_commands("lab", removes=mode == "remove")
        result = self.node.run(replace(command, argv=("bash", "-c", text)))
        values = by_kind(result, "files changed problem")
        assert values["problem"] == []
        return int((values["files"] or ["0"])[0]), values["changed"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_missing_files_are_sent_with_their_mode_once(place: Place) -> None:
    place.put("empty", "")
    (place.here / "link").symlink_to("pkg/model.py")
    planned = place.sending().planned("lab-1", CodeTree(state="absent"))
    assert (planned.outcome, planned.detail) == (
        Outcome.WOULD_CHANGE,
        "would send 4 files, 14 bytes: empty, link, main.py, pkg/model.py",
    )
    assert planned.diff == "new empty\nnew link\nnew main.py\nnew pkg/model.py"
    sent = place.send()
    assert (sent.node, sent.phase, sent.outcome) == ("lab-1", "code", Outcome.CHANGED)
    assert sent.detail == "sent 4 files, 14 bytes: empty, link, main.py, pkg/model.py"
    assert place.files() == {
        "empty": ("", 0o644),
        "link": ("x = 1\n", 0o644),
        "main.py": ("print()\n", 0o755),
        "pkg/model.py": ("x = 1\n", 0o644),
    }
    assert (place.there / "link").readlink() == Path("pkg/model.py")
    again = place.send()
    assert again.outcome is Outcome.OK
    assert again.detail == f"{place.there} has the 4 files of {place.here}"


def test_a_plan_lists_some_hundred_files_and_all_deletions(place: Place) -> None:
    for number in range(501):
        place.put(f"n/{number:03}", "")
    there = CodeTree(others=tuple(f"x/{number:03}" for number in range(600)))
    lines = place.sending(deletes=True).planned("lab-1", there).diff.splitlines()
    assert lines[:2] == ["new main.py", "new n/000"]
    assert lines[499:502] == ["new n/498", "and 3 more to send", "delete x/000"]
    assert len(lines) == 500 + 1 + 600


def test_only_what_changed_is_sent(place: Place) -> None:
    place.send()
    place.put("main.py", "print()\n", mode=0o700)
    place.put("pkg/model.py", "x = 2\n")
    sending = place.sending()
    planned = sending.planned("lab-1", place.look(sending))
    assert planned.diff == "mode main.py\nchanged pkg/model.py"
    assert place.send().detail == "sent 2 files, 14 bytes: main.py, pkg/model.py"
    assert place.files()["pkg/model.py"] == ("x = 2\n", 0o644)


def test_other_files_stay_without_delete_code(place: Place) -> None:
    place.exclude = ("data",)
    place.send()
    for name in ("old.py", "out/ckpt", "data/set"):
        (place.there / name).parent.mkdir(exist_ok=True)
        (place.there / name).write_text("theirs")
    assert place.send().outcome is Outcome.OK
    sending = place.sending(deletes=True)
    planned = sending.planned("lab-1", place.look(sending))
    assert planned.detail == "would delete old.py, out/ckpt"
    assert planned.diff == "delete old.py\ndelete out/ckpt"
    assert place.send(deletes=True).detail == "deleted old.py, out/ckpt"
    assert set(place.files()) == {"main.py", "pkg/model.py", "data/set"}
    assert place.send(deletes=True).outcome is Outcome.OK


def test_a_name_that_a_line_cannot_hold_is_never_deleted(place: Place) -> None:
    place.send()
    for name in ("a\nmain.py", "a"):
        (place.there / name).write_text("theirs")
    assert place.send(deletes=True).detail == "deleted a"
    assert set(place.files()) == {"a\nmain.py", "main.py", "pkg/model.py"}


def test_big_files_go_in_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PIECE", 1000)
    place.put("big", "0123456789" * 1234)
    source = place.sending().source
    sizes = [len(piece) for piece in source.pieces(list(source.tree.entries))]
    assert set(sizes[:-1]) == {1000}
    assert sum(sizes) == 12340 + 14
    before = len(place.node.executions)
    assert place.send().outcome is Outcome.CHANGED
    # The query and the pieces; the last piece goes with the command that puts all in place.
    assert len(place.node.executions) - before == 1 + len(sizes)
    assert place.files()["big"][0] == "0123456789" * 1234
    assert not (place.base / "code/incoming").exists()


def test_links_on_the_node_are_not_followed(place: Place, tmp_path: Path) -> None:
    outside, victim = tmp_path / "outside", tmp_path / "victim"
    outside.mkdir()
    victim.write_text("theirs")
    place.there.mkdir(parents=True)
    (place.there / "pkg").symlink_to(outside)
    (place.there / "main.py").symlink_to(victim)
    with pytest.raises(NodeError, match=r"lab-1: could not put the code in place: .*pkg leads out"):
        place.send()
    assert list(outside.iterdir()) == []
    (place.there / "pkg").unlink()
    assert place.send().outcome is Outcome.CHANGED
    assert victim.read_text() == "theirs"
    assert not (place.there / "main.py").is_symlink()


def test_a_folder_in_place_of_a_file_and_the_reverse_are_named(place: Place) -> None:
    (place.there / "main.py").mkdir(parents=True)
    with pytest.raises(NodeError, match=r"main\.py is a folder, but a file in the source"):
        place.send()
    (place.there / "main.py").rmdir()
    (place.there / "pkg").write_text("")
    with pytest.raises(NodeError, match="pkg is no folder, but code lies in it"):
        place.send()


def test_files_whose_bytes_did_not_arrive_are_not_put_in_place(place: Place) -> None:
    sending = place.sending()
    short = replace(sending._unpack(PurePosixPath(place.base), sending.work(CodeTree())))
    result = place.node.run(short)
    assert (result.exit_code, result.error_text) == (1, "0 bytes have arrived, not 14")
    assert not place.there.exists()


def test_leftovers_of_a_killed_setup_are_removed_and_are_no_code(place: Place) -> None:
    place.send()
    stage = place.there / ".ascendboot-sending.abc123"
    stage.mkdir()
    (stage / "main.py").write_text("half")
    (place.base / "code/incoming").write_text("rest of another try")
    assert place.send().outcome is Outcome.OK
    place.put("pkg/model.py", "x = 3\n")
    assert place.send().outcome is Outcome.CHANGED
    assert set(place.files()) == {"main.py", "pkg/model.py"}
    (place.base / "code/incoming").write_text("rest of another try")
    (place.here / "link").symlink_to("main.py")
    place.put("empty", "")
    (place.there / "left").write_text("theirs")
    assert place.send(deletes=True).detail == "sent 2 files, 0 bytes: empty, link, deleted left"


def test_a_source_that_changes_while_it_is_sent_is_named(place: Place) -> None:
    sending = place.sending()
    place.put("main.py", "")
    with pytest.raises(UsageError, match=r"main\.py: could not be sent: it has changed since"):
        sending.sync(place.node, CodeTree(), PurePosixPath(place.base), place.node)
    place.put("main.py", "printf\n\n")
    failed = sending.sync(place.node, CodeTree(), PurePosixPath(place.base), place.node)
    assert failed.outcome is Outcome.FAILED
    assert failed.detail.startswith(
        "lab-1: the code did not converge: main.py is not as in the source; does a job or another"
    )


def test_sending_ends_between_pieces_when_interrupted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "PIECE", 4)
    sending = place.sending()
    event = threading.Event()
    event.set()
    with pytest.raises(NodeError, match="could not send the code: interrupted"):
        replace(sending, interrupted=event).sync(
            place.node, CodeTree(), PurePosixPath(place.base), place.node
        )
    assert not place.there.exists()


def test_a_folder_with_keys_of_a_ca_is_no_code(place: Place) -> None:
    place.put("host_ca", "never sent")
    with pytest.raises(InventoryError, match="holds the keys of a cluster's CA"):
        place.sending()


def test_the_primary_sends_its_own_code_over_the_cluster_s_ssh(
    place: Place, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    Here(programs).put("ssh", f'printf "%s\\n" "${{@:1:5}}" >{tmp_path}/words\neval "$6"')
    place.there.mkdir(parents=True)
    (place.there / "more").write_text("theirs")
    cluster = replace(well.TWO, code_path=str(place.there), code_source="primary")
    source = read_source(cluster)
    assert source is not None
    wish = CodeSender(cluster, source, deletes=True)
    assert wish.questions() == {}
    there = place.look(wish)
    wish = wish.after({"lab-1": place.sending().source.tree, "lab-2": there})
    assert wish.planned("lab-1", wish.source.tree).detail == (
        f"{place.there} has the 2 files of lab-1"
    )
    # both nodes are this machine: the primary reads where the operator's folder is
    primary = node_here("lab-1", programs)
    reads_here = replace(wish, cluster=replace(cluster, code_path=str(place.here)))
    base, work = PurePosixPath(place.base), wish.work(there)
    primary.run(reads_here._carry("lab-2", base, work)).checked()
    config = f"{place.base}/trust/ssh_config"
    wanted = ["-F", config, "-o", "LogLevel=INFO", "198.18.0.2"]
    assert (tmp_path / "words").read_text().splitlines() == wanted
    assert (place.base / "code/incoming").read_text() == "print()\nx = 1\n"
    place.node.run(wish._unpack(base, work)).checked()
    assert place.files() == {"main.py": ("print()\n", 0o755), "pkg/model.py": ("x = 1\n", 0o644)}
    (place.there / "more").write_text("theirs")
    whole = tree_query("all", str(place.there), ())
    found = whole.parse(place.node.run(whole.command))
    assert wish.work(found) == Work(send=(), delete=("more",))


# ------------------------------------------------------------------------------------ reset


def test_reset_removes_only_sent_files_that_are_unchanged(place: Place) -> None:
    place.there.mkdir(parents=True)
    (place.there / "README").write_text("theirs")
    (place.there / "main.py").write_text("older, theirs")
    place.put("pkg/sub/c.py", "c\n")
    place.put("d e.py", "d\n")
    (place.here / "link").symlink_to("main.py")
    place.send()
    (place.there / "pkg/model.py").write_text("edited")
    changed = [str(place.there / "pkg/model.py")]
    assert place.reset("look") == (3, changed)
    assert "d e.py" in place.files()
    assert place.reset() == (3, changed)
    # main.py was there before: what it held is gone, so what was sent is left
    assert set(place.files()) == {"README", "main.py", "pkg/model.py"}
    assert not (place.there / "pkg/sub").exists()


def test_reset_removes_the_folders_that_setup_made(place: Place, tmp_path: Path) -> None:
    place.send()
    place.put("main.py", "newer\n")
    place.send()
    assert place.reset() == (2, [])
    assert not (tmp_path / "srv").exists()
    assert place.reset() == (0, [])


def test_reset_removes_the_leftovers_of_a_killed_setup(place: Place, tmp_path: Path) -> None:
    place.send()
    stage = place.there / ".ascendboot-sending.abc123"
    stage.mkdir()
    (stage / "half").write_text("")
    (place.base / "code/stage").write_text(f"{stage}\n")
    assert place.reset() == (2, [])
    assert not (tmp_path / "srv").exists()


# ------------------------------------------------------------------------- the operator's side


def refused(place: Place) -> list[str]:
    with pytest.raises(InventoryError) as raised:
        place.sending()
    return [problem.replace(str(place.here), "HERE") for problem in raised.value.problems]


def test_all_files_that_cannot_be_sent_are_named(place: Place) -> None:
    (place.here / "out").symlink_to("../elsewhere")
    (place.here / "pkg/abs").symlink_to("/etc/passwd")
    (place.here / "pkg/inside").symlink_to("../main.py")
    (place.here / "pkg/up").symlink_to("..")
    (place.here / "a\nb").write_text("")
    os.mkfifo(place.here / "fifo")
    remedy = "remove it, or leave it out with `code.exclude`"
    assert refused(place) == [
        f"HERE/a\\nb: has a name that cannot be sent; rename it; {remedy}",
        f"HERE/fifo: is neither file, folder nor link; {remedy}",
        f"HERE/out: is a symbolic link that leads out of the tree, to ../elsewhere; {remedy}",
        f"HERE/pkg/abs: is a symbolic link that leads out of the tree, to /etc/passwd; {remedy}",
    ]
    place.exclude = ("out", "abs", "a*b", "fifo")
    entries = place.sending().source.tree.entries
    assert list(entries) == ["main.py", "pkg/inside", "pkg/model.py", "pkg/up"]
    assert entries["pkg/up"].target == ".."


def test_a_source_that_is_too_large_or_missing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "MOST_FILES", 1)
    [problem] = refused(place)
    assert problem.startswith(
        "HERE: could not be taken as code: it holds 2 files and 0 MiB, of at most 1 files and 512"
    )
    place.here.rename(place.here.with_name("moved"))
    assert refused(place) == ['lab.yaml: code.source: "HERE" is not a folder here; correct it']


def test_without_a_source_no_code_is_read() -> None:
    assert read_source(replace(well.TWO, code_path="/x")) is None
    primary = read_source(replace(well.TWO, code_path="/x", code_source="primary"))
    assert primary == Source(None, "lab-1")
