"""`check --advise`: hints for jobs, from the table in `advice.yaml`."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ascendboot.cli.known_jobs import known_jobs
from ascendboot.cli.session import Session, setup_record_of, work_side
from ascendboot.errors import UsageError
from ascendboot.launch.plan import rank_log
from ascendboot.templates import script
from ascendboot.transport.api import read_script
from ascendboot.value import Value, data_file


class Hint(Value, kw_only=True, forbid_unknown_fields=True):
    """A row of the table; its comments describe the members."""

    id: str
    look: Literal["script", "variables", "log"]
    has: str
    lacks: str = ""
    above_cores: bool = False
    text: str
    remedy: str
    source: str

    def applied(self, name: str, text: str, ranks: int, cores: int) -> dict[str, str]:
        """What it says of a text, by member of the JSON document; empty: it does not apply."""
        first, seen = re.search(self.has, text), re.findall(self.has, text)
        if not first or (self.lacks and re.search(self.lacks, text)):
            return {}
        most = max(map(int, seen)) if self.above_cores else 0
        if self.above_cores and (most < 2 or not 0 < cores < most * ranks):  # noqa: PLR2004
            return {}
        values = {"count": len(seen), "number": most or next(filter(None, seen[::-1]), "")}
        values |= {"total": most * ranks, "ranks": ranks, "cores": cores}
        values["most"] = max(1, cores // ranks)
        line = f":{text.count(chr(10), 0, first.start()) + 1}" if self.look == "script" else ""
        words = {"text": self.text.format_map(values), "remedy": self.remedy.format_map(values)}
        return {"id": self.id, "where": f"{name}{line}", **words, "source": self.source}


def advice_on(session: Session) -> list[dict[str, str]]:
    """The hints for the last job; before the first, for the scripts directly in `code.path`."""
    cluster, primary = session.cluster, session.cluster.primary
    path, here, log, cores = cluster.code_path or "", Path(), dict[str, str](), ""
    with suppress(UsageError):  # no job was started from here
        job, *_ = known_jobs(session.state, cluster, None)
        known = job.record.script
        path, here = known.get("path") or path, Path(known.get("copied_from") or "")
        with suppress(FileNotFoundError), (job.folder / rank_log(0)).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - (1 << 24)))  # of a long log its last 16 MiB
            log[f"{job.record.job_id}, rank 0"] = file.read().decode(errors="replace")
    scripts = {str(here): here.read_text(errors="replace")} if here.is_file() else {}
    if primary.name in session.hosts:
        command = read_script(script("advice.sh"), path, purpose="read the script for hints")
        done = work_side(primary, session.hosts[primary.name]).run(command).checked()
        cores, *read = re.split(r"(?m)^==> (.*) <==$\n", done.text)
        scripts = scripts or dict(zip(read[::2], read[1::2], strict=True))
    env = "".join(f"{name}={value}\n" for name, value in cluster.env_of(primary).items())
    # Comments are no code; a launcher key of the inventory counts as a part of the script.
    launcher = "\nranks_per_node: 1" if cluster.ranks_per_node else ""
    codes = {name: re.sub("#.*", "", text) + launcher for name, text in scripts.items()}
    texts = {"script": codes, "variables": {f"{cluster.source}: env": env}, "log": log}
    applied = setup_record_of(session.state, cluster)
    ranks = len(applied.placement(cluster).ranks_on(primary)) if applied else 1
    return [
        found
        for hint in data_file("cli/advice.yaml", list[Hint])
        for name, text in texts[hint.look].items()
        if (found := hint.applied(name, text, ranks, int(cores or 0)))
    ]
