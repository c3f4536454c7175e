"""The question what lies under `code.path`, every file with its digest, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.api import Fact, output_of
from ascendboot.model.code import ALWAYS_LEFT_OUT, MOST_BYTES, MOST_FILES, CodeTree, Entry
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ascendboot.model.cluster import Cluster
    from ascendboot.transport.api import Result

_TOOL = "the script that looks at the code"
_TIMEOUT_S = 120.0
_MOST_ANSWER = 16 << 20
_MOST_RECORDS = 250_000
"""With these the answer takes some 100 MB here: names of files that are no code are many."""
LARGE_BYTES = 32 * 1024**2
"""Larger files are data: checkpoints that a job left, say."""

# Records end with a NUL, so that any name passes; sha256sum escapes names in its own way.
_SCRIPT = rf"""
export LC_ALL=C
ways=$1 path=$2; shift 2
state() {{ printf '%s\0' "$1"; }}
files=() count=0 bytes=0
show='f %m %s %p\0'
take() {{
  local record rest kind
  while IFS= read -r -d '' record; do
    kind=${{record%% *}} rest=${{record#* * }}
    if [ "$ways" = light ] && [ "${{rest%% *}}" -gt {LARGE_BYTES} ]; then
      case $rest in
        *.py | *.sh | *.so) ;;
        *) kind=b record=b${{record#f}} rest="0 ${{rest#* }}" ;;
      esac
    fi
    count=$((count + 1)) bytes=$((bytes + ${{rest%% *}}))
    if [ "$count" -gt {MOST_FILES} ] || [ "$bytes" -gt {MOST_BYTES} ]; then
      printf 'excess %s %s\0' "$count" "$bytes"; return 1
    fi
    [ "$kind" != f ] || files+=("${{rest#* }}")
    printf '%s\0' "$record"
  done
}}
if [ -d "$path" ]; then
  cd -P -- "$path" 2>/dev/null || {{ state unreadable; exit 0; }}
elif [ -f "$path" ]; then ways=; cd -P -- "${{path%/*}}/" && files=("./${{path##*/}}")
else state absent; exit 0; fi
state present
prune=(-name .git)
for pattern; do
  case $pattern in */*) prune+=(-o -path "./$pattern") ;; *) prune+=(-o -name "$pattern") ;; esac
done
case $ways in
  '') find "${{files[@]}}" -printf "$show" ;;
  all | light) take < <(find . -mindepth 1 \( "${{prune[@]}}" \) -prune -o -type f -printf "$show" \
    -o -type l -printf 'l 0 0 %p\0t 0 0 %l\0') || exit 0 ;;
  *)
    take < <(while IFS= read -r name; do
      [ ! -L "$name" ] && [ ! -f "$name" ] || printf './%s\0' "$name"
    done | xargs -0 -r bash -c 'find "$@" -maxdepth 0 \( -type f -printf "$0" \
      -o -type l -printf "l 0 0 %p\0t 0 0 %l\0" \)' "$show") || exit 0
    [ "$ways" != names ] || find . -mindepth 1 \( "${{prune[@]}}" \) -prune \
      -o \( -type f -o -type l \) -printf 'n 0 0 %p\0' ;;
esac
state sums
[ "${{#files[@]}}" = 0 ] || printf '%s\0' "${{files[@]}}" | xargs -0 sha256sum -- 2>/dev/null
echo end
"""
"""Arguments: what to tell, the root, patterns to be left out. `all` and `light` tell the tree,
`light` large files by size alone; `wished` the files whose paths stand on stdin, one a line;
`names` these and, of all others, the names."""


def code_questions(cluster: Cluster) -> dict[str, Fact[Any]]:
    """What lies below the code's path, unless this side knows what should."""
    if cluster.code_path is None or cluster.code_folder is not None:
        return {}
    is_light = cluster.code_source is None
    return {"code_tree": code_question(cluster.code_path, cluster.code_exclude, light=is_light)}


def code_question(path: str, exclude: Sequence[str], *, light: bool) -> Fact[CodeTree]:
    """Asks for the whole tree at `path`; `light` tells large files, unless programs, by size."""
    return _fact("light" if light else "all", path, exclude, b"")


def files_question(
    path: str, exclude: Sequence[str], wished: Iterable[str], *, with_others: bool
) -> Fact[CodeTree]:
    """Asks for the wished files alone; `with_others` for the names of all others as well."""
    stdin = "".join(f"{name}\n" for name in wished).encode()
    return _fact("names" if with_others else "wished", path, exclude, stdin)


def _fact(ways: str, path: str, exclude: Sequence[str], stdin: bytes) -> Fact[CodeTree]:
    words = (ways, path, *ALWAYS_LEFT_OUT, *exclude)
    command = Command(
        argv=("bash", "-c", _SCRIPT, "ascendboot", *words),
        purpose=f"look at the files of {path}",
        effect=Effect.READ,
        timeout_s=_TIMEOUT_S,
        most_bytes=_MOST_ANSWER,
        stdin=stdin,
    )
    return Fact("code_tree", command, parse_code)


def parse_code(result: Result) -> CodeTree:
    """What the question found.

    Raises:
        ToolError: the script itself failed.
        NotUnderstoodError: its answer has an unknown form or no end.
    """
    output_of(result)
    if result.stdout.count(b"\0") > _MOST_RECORDS:
        raise ToolError(
            f"there are more than {_MOST_RECORDS} files; leave out those that are no code with "
            "`code.exclude`"
        )
    state, *records = result.stdout.decode(errors="surrogateescape").split("\0")
    if state in {"absent", "unreadable"}:
        return CodeTree(exists=state != "absent")
    if records[-2:-1] and records[-2].startswith("excess "):
        _, files, size = records[-2].split(" ")
        return CodeTree(excess=(int(files), int(size)))
    if state != "present" or "sums" not in records:
        raise NotUnderstoodError(_TOOL, 1, state, "a state, records and sums")
    at = records.index("sums")
    sums = dict(_sums("\0".join(records[at + 1 :])))
    entries: dict[str, Entry] = {}
    others = []
    for kind, mode, size, name in _read(records[:at]):
        if kind == "n":
            others.append(name)
        elif kind == "l":
            entries[name] = Entry(target=mode)
        elif kind == "b":
            entries[name] = Entry(f"{size} bytes", int(mode, 8), size=int(size))
        else:
            entries[name] = Entry(sums.get(name, ""), int(mode, 8), size=int(size))
    ordered = dict(sorted(entries.items()))
    return CodeTree(entries=ordered, others=tuple(sorted({*others} - {*entries})))


def _read(records: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Kind, mode, size and name; of a link its target in place of the mode."""
    rest = iter(records)
    for number, record in enumerate(rest, 1):
        kind, *numbers, name = record.split(" ", 3)
        if kind not in {"f", "b", "l", "n"} or len(numbers) != 2:  # noqa: PLR2004 - mode and size
            raise NotUnderstoodError(_TOOL, number, record, "f, b, l or n, mode, size and name")
        target = next(rest, "").split(" ", 3)[-1] if kind == "l" else ""
        yield kind, target or numbers[0], numbers[1], name.removeprefix("./")


def _sums(text: str) -> Iterator[tuple[str, str]]:
    lines = text.split("\n")
    if lines[-2:] != ["end", ""]:
        raise NotUnderstoodError(_TOOL, len(lines), lines[-1], "end")
    for line in lines[:-2]:
        sha256, _, name = line.removeprefix("\\").partition("  ")
        if line.startswith("\\"):
            name = name.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
        yield name.removeprefix("./"), sha256
