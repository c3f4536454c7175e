"""The wish that the cluster's own sshd runs with the configuration that we wrote."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from ascendboot.facts.own import SSHD_FUNCTIONS
from ascendboot.steps.api import Change, Satisfied, Verdict
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.facts.own import Own

# sshd reports a taken port only in its log, so a start that gives no pid file shows the log's end.
_START = """\
b={base}
cd -- "$b/sshd" || exit 1
printf '%s  sshd_config\\n' {sha} | sha256sum -c --status || {{
  echo "sshd_config is not what was written" >&2; exit 1; }}
if [ "$(id -u)" = 0 ] && [ ! -d /run/sshd ]; then
  echo /run/sshd >>made && install -d -m 755 /run/sshd
fi
{sshd} -t -f {base}/sshd/sshd_config || exit 1
for pid in $(sshds_of_ours); do
  kill -TERM "$pid"
  for _ in {{1..100}}; do is_sshd_of_ours "$pid" || break; sleep 0.05; done
done
rm -f -- sshd.pid started
{sshd} -f {base}/sshd/sshd_config -E {base}/sshd/sshd.log 3>&- </dev/null >/dev/null 2>&1
for _ in $(seq 100); do
  pid=$(cat sshd.pid 2>/dev/null) && [ -n "$pid" ] && break
  sleep 0.05
done
start=$(start_of "$pid")
[ -n "$pid" ] && [ -n "$start" ] || {{
  tail -n 3 sshd.log | tr -d '\\r' | paste -s -d '|' - >&2; exit 1; }}
sha=$({{ cat sshd_config; ssh-keygen -y -P '' -f host_key | cut -d' ' -f1,2; }} | sha256sum)
cert=$({{ sha256sum <host_key-cert.pub | cut -d' ' -f1; }} 2>/dev/null)
echo "$pid $start ${{sha%% *}} ${{cert:--}}" >started.new && mv -f started.new started
"""


@dataclass(frozen=True)
class Daemon:
    """Our sshd runs with exactly `config` (the text of `sshd/sshd_config`)."""

    sshd: str
    """Absolute path of the program; sshd refuses to start when called otherwise."""
    config: str

    @property
    def name(self) -> str:
        """Always the same: there is one such sshd per node."""
        return "sshd"

    def check(self, own: Own) -> Verdict:
        """Satisfied by a live process of ours, started with this configuration and host key."""
        config = self.config.encode()
        identity = sha256(config + f"{own.host_key}\n".encode()).hexdigest()
        if own.strays:
            why = "an sshd of the cluster runs without its record"
        elif own.daemon is None:
            why = "the cluster's sshd does not run"
        elif own.daemon.identity != identity:
            why = "the cluster's sshd runs with another configuration or host key"
        else:
            return Satisfied("runs as configured")
        return Change(summary=why, commands=(self.start(own),))

    def start(self, own: Own) -> Command:
        """The command that starts it, in place of one that runs; sessions go on."""
        script = SSHD_FUNCTIONS + _START.format(
            base=shlex.quote(str(own.base)),
            sha=sha256(self.config.encode()).hexdigest(),
            sshd=shlex.quote(self.sshd),
        )
        return Command(
            argv=("bash", "-c", script),
            purpose="start the cluster's sshd",
            effect=Effect.WRITE,
            timeout_s=20.0,
        )
