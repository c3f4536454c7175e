"""One execution on a node that tries all its attempts, and what came of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.api import Unanswered, attempt, output_of, part_of
from ascendboot.facts.npus import hccn_tool_said
from ascendboot.facts.scripts import CALL_TIMEOUT_S, COMMON, VENDOR_TOOLS
from ascendboot.parse import hccn_ping
from ascendboot.parse.reading import lines_of
from ascendboot.parse.sections import split
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.facts.api import Answer
    from ascendboot.network.attempts import Attempts, Ends, Knock
    from ascendboot.parse.hccn_ping import Ping
    from ascendboot.parse.sections import Section
    from ascendboot.transport.api import Result

KNOCK_TIMEOUT_S = 3
_TOOL = "the script that proves the network"
_AT_ONCE = 32
_KNOCK = re.compile(r"([0-9]+) ([0-9]{1,3}) ?(.*)")

# Knocks run beside the pings. A connection needs no program but bash: /dev/tcp is its own.
_SCRIPT = (
    COMMON
    + VENDOR_TOOLS
    + rf"""
knock() {{
  local said code=0
  said=$(timeout -k 1 {KNOCK_TIMEOUT_S} bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>&1) ||
    code=$?
  said=${{said##*$'\n'}}
  printf '%s %s %s\n' "$1" "$code" "${{said##*: }}"
}}
export -f knock
knocks=; pings=(); until_s=$1; enough=$((until_s + 60))
while read -r kind rest; do
  case $kind in *ping) pings+=("$kind $rest") ;; knock) knocks+="$rest"$'\n' ;; esac
done
exec 4< <(printf %s "$knocks" | xargs -r -P {_AT_ONCE} -L 1 bash -c 'knock "$@"' _)
if [ "${{#pings[@]}}" = 0 ]; then section hccn_tool 0 'not needed'
elif locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for ping in "${{pings[@]}}"; do
    look_up; [ "$((up - began))" -lt "$until_s" ] || break
    read -r way number id address <<<"$ping"
    tell "ping/$number" merged timeout -k 1 {CALL_TIMEOUT_S} \
      "$found" -i "$id" "-$way" -g address "$address"
  done
else
  section hccn_tool 127 'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
section knocks 0 "$(cat <&4)"
section end 0 ''
"""
)


@dataclass(frozen=True)
class Knocked:
    """What became of a TCP connection: timeout(1)'s or bash's exit code, and bash's reason."""

    exit_code: int
    reason: str


@dataclass(frozen=True)
class Tried:
    """What came of one node's attempts; what was not tried is in neither mapping."""

    pings: Mapping[Ends, Answer[Ping]] = field(default_factory=dict)
    knocks: Mapping[Knock, Knocked] = field(default_factory=dict)
    trouble: Unanswered | None = None
    """Why no NPU of the node was asked to ping."""


def command(attempts: Attempts) -> Command:
    """The command that tries all of a node's attempts, pings one after the other.

    It ends in time: after about two seconds for each ping the rest is left out.
    """
    pings = [
        f"{ping.way} {number} {ping.source.device_id} {ping.target.address}\n"
        for number, ping in enumerate(attempts.pings)
    ]
    knocks = [
        f"knock {number} {knock.address} {knock.port}\n"
        for number, knock in enumerate(attempts.knocks)
    ]
    for_pings = 30 + 2 * len(pings)
    for_knocks = 5 + KNOCK_TIMEOUT_S * (1 + len(knocks) // _AT_ONCE)
    return Command(
        argv=("bash", "-c", _SCRIPT, "ascendboot", str(for_pings)),
        purpose="try the network",
        effect=Effect.READ,
        timeout_s=30.0 + max(for_pings, for_knocks),
        stdin="".join([*pings, *knocks]).encode(),
    )


def read(attempts: Attempts, result: Result) -> Tried:
    """What came of each attempt.

    Raises:
        ToolError: the script itself did not come to its end.
        NotUnderstoodError: its answer has an unknown form.
    """
    output_of(result)
    sections = split(result.stdout, _TOOL)
    found = attempt("ping from the NPUs", partial(part_of, sections, "hccn_tool", _TOOL))
    return Tried(
        pings={
            ping: _pinged(ping, sections[f"ping/{number}"])
            for number, ping in enumerate(attempts.pings)
            if f"ping/{number}" in sections
        },
        knocks=_knocked(attempts, part_of(sections, "knocks", _TOOL)),
        trouble=found if isinstance(found, Unanswered) else None,
    )


def _pinged(ping: Ends, section: Section) -> Answer[Ping]:
    tool = f"hccn_tool -i {ping.source.device_id} -{ping.way} -g address {ping.target.address}"
    return attempt(
        f"ping {ping.target}", lambda: hccn_ping.parse(hccn_tool_said(section, tool), tool)
    )


def _knocked(attempts: Attempts, text: str) -> dict[Knock, Knocked]:
    found = {}
    for line in lines_of(text):
        match = _KNOCK.fullmatch(line.text)
        if match is None or int(match[1]) >= len(attempts.knocks):
            raise NotUnderstoodError(_TOOL, line.number, line.text, "NUMBER EXIT_CODE REASON")
        found[attempts.knocks[int(match[1])]] = Knocked(int(match[2]), match[3].strip())
    return found
