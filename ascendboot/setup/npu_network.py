"""The network ports of NPUs as a step of `setup`, and as they were before."""

from __future__ import annotations

from ascendboot.facts.installed import Installed, base_script
from ascendboot.facts.npu_ports import KEYWORDS, PortState, in_order
from ascendboot.facts.npus import CALL_TIMEOUT_S
from ascendboot.facts.query import Unanswered, value_of
from ascendboot.model.cluster import NpuPort
from ascendboot.setup.steps import Blocked, Change, Satisfied, Step, StepState
from ascendboot.templates import script
from ascendboot.transport.api import Command, write_script

BEFORE = "npu-network.before"
"""In the cluster's folder on a host: what the ports had before `setup` first changed them."""
_BUSY_S = 20
_LINK_S = 25
_PORT_S = 60
"""The longest that the calls for one port usually take, where each takes seconds."""


class NpuNetwork(Step, kw_only=True):
    """The network ports of the node's NPUs are set as the inventory states."""

    name: str = "npu-network"
    cluster: str
    ports: tuple[NpuPort, ...]

    def check(self, installed: Installed) -> StepState:
        """Satisfied by the same values on the devices and for their next boot."""
        found = value_of(installed.ports)
        if found is None:
            why = installed.ports.message if isinstance(installed.ports, Unanswered) else ""
            return Blocked(why, "Repair the tool, or remove `npu_network`")
        states = {}
        for device_id, answer in found.states.items():
            if isinstance(answer, Unanswered):
                return Blocked(answer.message, "Run setup again when the tool answers")
            states[device_id] = answer.value
        lines, shown, why_each = [], [], []
        for port in in_order(self.ports, states) or self.ports:
            wrong = states[port.device_id].wrong(port)
            if wrong:
                why_each.append(f"device {port.device_id}: {', '.join(wrong.values())}")
            lines += _lines(port, states[port.device_id], wrong)
            shown += [_call(port, kind) for kind, _ in port.settings if kind in wrong]
        if not shown:
            return Satisfied(f"{len(self.ports)} NPUs are set as stated, also for the next boot")
        text = base_script(self.cluster) + _script("set")
        command = write_script(
            text,
            purpose="set the network of the NPUs",
            timeout_s=_LINK_S + _PORT_S * float(len(why_each)),
            stdin="".join(f"{line}\n" for line in lines).encode(),
        )
        return Change(summary="; ".join(why_each), commands=(command,), shown=tuple(shown))


def restore_command(cluster: str) -> Command:
    """The command that sets the ports as they were before `setup` first changed them."""
    text = base_script(cluster) + _script("restore")
    return write_script(text, purpose="restore the network of the NPUs", timeout_s=16.0 * _PORT_S)


def _script(mode: str) -> str:
    values = {"mode": mode, "busy_s": _BUSY_S, "link_s": _LINK_S, "call_s": CALL_TIMEOUT_S}
    return script("setup-npu-ports.sh", **values)


def _call(port: NpuPort, kind: str) -> str:
    pairs = zip(KEYWORDS[kind], dict(port.settings)[kind], strict=True)
    words = " ".join(f"{keyword} {value}" for keyword, value in pairs)
    return f"hccn_tool -i {port.device_id} -{kind} -s {words}"


def _lines(port: NpuPort, state: PortState, wrong: dict[str, str]) -> list[str]:
    """What there is before, and what is to be set, as `setup-npu-ports.sh` reads it."""
    # A new address can remove the gateway.
    noted = dict.fromkeys((*wrong, *(["gateway"] if "ip" in wrong else [])))
    before = [
        f"{port.device_id} {kind} was {' '.join(state.values.get(kind, ('-',)))}" for kind in noted
    ]
    wanted = [
        f"{port.device_id} {kind} set {' '.join(values)}"
        for kind, values in port.settings
        if kind in wrong
    ]
    return [*before, *wanted]
