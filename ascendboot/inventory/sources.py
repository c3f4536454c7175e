"""Nodes of words, hostfiles, ~/.ssh/config and Ansible for a new inventory, and for Ansible."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from ascendboot.errors import UsageError
from ascendboot.inventory import values
from ascendboot.inventory.yaml import Mark, Raw, Sheet, described, read, read_text
from ascendboot.model.cluster import NO_PROXY_COMMAND, SSH_PORT, Cluster, Node, jump_of
from ascendboot.model.names import expand, runs
from ascendboot.model.secrets import is_secret_name
from ascendboot.value import Struct, Value, field

_HOST = re.compile(
    r"(?:(?P<user>[^\s:@]+)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*|[^\s@:]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_SSH_HOST = re.compile(r"\s*host(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
_SSH_OTHER = re.compile(
    r"\s*(hostname|user|port|identityfile|proxyjump|include|match)[\s=]", re.IGNORECASE
)
_YAML = re.compile(r"---|\{|[^\s\[=]+:(\s|$)")
_SECTION = re.compile(r"\[([^\]:]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_SLOTS = re.compile(r"\s(max[_-])?slots\s*=\s*0*([0-9]{1,4})")
_MATCH_EXEC = re.compile(r"match\b.*\bexec\b", re.IGNORECASE)
_JUMP = re.compile(r"(?:-J\s*|ProxyJump[ =])([^\s'\"]+)")
_PROXY_COMMAND = re.compile(r"(?:-o\s*)?ProxyCommand[\s=]\s*(.*)", re.IGNORECASE)
_KEYS = {
    "ansible_host": "address",
    "ansible_user": "user",
    "ansible_port": "port",
    "ansible_private_key_file": "identity",
    "slots": "devices",
    "ascendboot_cluster_address": "cluster_address",
    "ascendboot_container": "container",
    "ascendboot_server_id": "server_id",
}
"""The keys of a node for variables of Ansible and hostfiles, and those of `export.ansible`."""
_VARIABLES_OF = {key: name for name, key in _KEYS.items()} | {"jump": "ansible_common_args"}
_NUMBERS = ("port", "devices")
_ARGUMENTS = ("ansible_args", "ansible_common_args", "ansible_extra_args")
_SUDO = {"ansible_become": "", "ansible_become_method": "sudo", "ansible_become_user": "root"}
_SUDO_PASSWORD = re.compile(r"ansible_(become|sudo)_pass(word)?")
_YES = ("1", "on", "t", "true", "y", "yes")
_ENDINGS = ("", ".yml", ".yaml", ".json")
_NOTED = ("ansible_", "ascendboot_", "$ANSIBLE_VAULT")
"""Of files in these folders other variables are noted together: tasks use them, not SSH."""
_CONTENT = re.compile(r"^\s*(?!---|#)\S", re.MULTILINE)
_NO_KEY = "an inventory has no such key"
_NO_GROUP = "names have letters, digits, - _ . and begin with a letter or digit"
_LOGIN = "log in with a key: ssh-copy-id puts yours on the nodes"
_ENCRYPTED = "encrypted by ansible-vault, so it is not read; state it in the new inventory"
_FORMS = (
    "expected hosts, a hostfile, ~/.ssh/config or an inventory of Ansible "
    "(`ansible-inventory -i FILE --list >hosts.json` writes any as one file that is read)"
)
KeysOfAlias = Callable[[str], tuple[Mapping[str, str], Mapping[str, str]]]
"""Returns the keys of a node that an ssh config states for an alias, and why others have none."""
_Variables = dict[str, tuple[str, str]]
"""Values and their places `file:line`, by name."""


class Host(Value, kw_only=True):
    """A node as words or another tool's file name it; `keys` are those of an inventory."""

    name: str
    where: str
    """`hosts.ini:3`, or the word on the command line."""
    keys: Mapping[str, Any]
    groups: tuple[str, ...] = ()


def hosts_of(
    words: Iterable[str], file: Path | None = None, keys_of_alias: KeysOfAlias | None = None
) -> tuple[list[Host], list[str]]:
    """The hosts that words and a file name, and notes on what of the file is left out.

    Words that are hosts of the file select these of it. `keys_of_alias` is for an ssh config that
    connecting does not read.

    UsageError: a word or line is not understood, or a host is named twice. InventoryError: the
    file cannot be read.
    """
    found = [host for word in words for host in _hosts(word, word or "init")]
    plain = {host.name for host in found if len(host.keys) == 1}
    source = _Source(named=plain, keys_of_alias=keys_of_alias)
    if file is not None:
        more = source.hosts_of(file)
        chosen = [host for host in more if host.name in plain]
        taken = {host.name for host in chosen}
        found = [host for host in found if host.name not in taken] + (chosen or more)
    seen: dict[object, Host] = {}
    for host in found:
        place = tuple(host.keys.get(key) for key in ("address", "port", "jump"))
        if first := seen.get(host.name):
            raise UsageError(f"{host.where}: {host.name} stands in {first.where} too; keep one")
        if first := seen.get(place):
            same = f"has the same address as {first.name} ({first.where}): {place[0]}"
            remedy = f"name the hosts that you want: init {first.name} --from {file}"
            raise UsageError(f"{host.where}: {host.name} {same}; {remedy}")
        seen[host.name] = seen[place] = host
    return found, source.notes


def _hosts(word: str, where: str) -> Iterator[Host]:
    """The hosts of a word such as `root@atlas-[01-16]:2222`."""
    match = _HOST.fullmatch(word)
    if match is None:
        words = f"{described(word)} is no host; write NAME, USER@NAME or USER@NAME:PORT"
        raise UsageError(f"{where}: {words}")
    host, user, port = match["host"], match["user"], match["port"]
    more = {"user": user} if user else {}
    more |= {"port": int(port)} if port else {}
    try:
        names = expand(host[1:-1] if ":" in host and host[0] == "[" else host)
    except ValueError as error:
        raise UsageError(f'{where}: "{host}": {error}') from error
    for name in names:
        if why := values.why_not_address(name):
            raise UsageError(f'{where}: "{name}" {why}')
        yield Host(name=name, where=where, keys={"address": name, **more})


class _Source(Struct):
    """A file of another tool; of Ansible its groups, with hosts, inner groups and variables."""

    file: str = ""
    named: Set[str] = frozenset()
    """Hosts that are wanted, if the file has them."""
    keys_of_alias: KeysOfAlias | None = None
    left_out: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    """The lines of what is left out, by file and words that name it and say why."""
    own: dict[str, _Variables] = field(default_factory=dict)
    """The variables of each host, and its place as the one without a name."""
    hosts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    parents: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    shared: dict[str, _Variables] = field(default_factory=lambda: defaultdict(dict))
    """The variables of each group, and its place in the same way."""

    def leave_out(self, at: str, what: str, why: str = _NO_KEY) -> None:
        file, _, line = at.rpartition(":")
        if file != self.file and not what.startswith(_NOTED):
            what, why = "other variables", _NO_KEY
        self.left_out[file, f"{what}: left out: {why}"].add(int(line))

    @property
    def notes(self) -> list[str]:
        """What is left out, with file and lines; of the named file first."""
        found = sorted(
            (file != self.file, file, min(lines), f"{file}:{runs(lines)}: {words}")
            for (file, words), lines in self.left_out.items()
        )
        return [note for *_, note in found]

    def hosts_of(self, path: Path) -> list[Host]:
        """The hosts of a file, whose form its content shows."""
        self.file = file = str(path)
        whole = read_text(path, file)
        numbered = enumerate(whole.splitlines(), 1)
        lines = [(f"{file}:{n}", text.strip()) for n, text in numbered]
        lines = [(at, text) for at, text in lines if text[:1] not in ("", "#", ";")]
        texts = [text for _, text in lines]
        if not lines:
            raise UsageError(f"{file}: names no host; {_FORMS}")
        if _YAML.match(texts[0]):
            self.of_yaml(self.sheet(path, whole))
        elif any(map(_SSH_HOST.match, texts)) and any(map(_SSH_OTHER.match, texts)):
            self.of_ssh(lines)
        else:
            self.of_ini(lines)
        found = self.resolved()
        if not found:
            raise UsageError(*self.notes, f"{file}: names no host that SSH reaches; {_FORMS}")
        return found

    def of_ssh(self, lines: Sequence[tuple[str, str]]) -> None:
        """The aliases; what else stands there, connecting reads itself, or ssh."""
        aliases, keys_of = [], self.keys_of_alias
        if keys_of and not Path(self.file).is_file():
            raise UsageError(f"{self.file}: ssh reads an ssh config again; name a file, not a pipe")
        for at, line in lines:
            if match := _SSH_HOST.fullmatch(line):
                aliases += [(at, word) for word in match[1].split() if not set(word) & set("*?!")]
            elif keys_of and _MATCH_EXEC.match(line):
                remedy = "remove it, or name the hosts as HOST"
                raise UsageError(f"{at}: {line}: ssh would run this program; {remedy}")
            elif line.lower().startswith(("include", "match")):
                self.leave_out(at, line, "it may name more hosts; name them as HOST")
        wanted = self.named & {word for _, word in aliases}
        for at, word in aliases:
            keys, lost = keys_of(word) if keys_of and word in (wanted or [word]) else ({}, {})
            given = {
                _VARIABLES_OF[key]: (f"-J {value}" if key == "jump" else value, at)
                for key, value in keys.items()
            }
            self.add("all", word, at, given)
            for what, why in lost.items():
                self.leave_out(at, f"{word}: {what}", why)

    def of_ini(self, lines: Iterable[tuple[str, str]]) -> None:
        """Also of a hostfile, with lines such as `atlas-1 slots=8`, or without slots."""
        name, kind = "ungrouped", "hosts"
        for at, line in lines:
            if match := _SECTION.fullmatch(line):
                name, kind = match[1], match[2] or "hosts"
                if kind not in ("hosts", "vars", "children"):
                    raise UsageError(f"{at}: {line}: no such section; write :vars or :children")
                self.parents[name] |= set()
                self.shared[name].setdefault("", ("", at))
                continue
            key, _, value = line.partition("=")
            try:
                word, *more = shlex.split(_SLOTS.sub(_slots, line), comments=True)
            except ValueError as error:
                raise UsageError(f"{at}: {str(error).lower()}; check the quotes") from error
            if kind == "children":
                self.parents[word].add(name)
            elif kind == "vars":
                self.shared[name][key.strip()] = (_unquoted(value.strip()), at)
            elif not all("=" in each for each in more):
                raise UsageError(f"{at}: {described(line)} is not understood; {_FORMS}")
            elif (host := _HOST.fullmatch(word)) and int(host["port"] or SSH_PORT) < SSH_PORT:
                place, port = host["host"], host["port"]
                remedy = f"write {place} slots={port}, or ansible_port={port}"
                raise UsageError(f'{at}: "{word}": {port} slots, as in MPICH, or a port? {remedy}')
            else:
                given = [each.partition("=") for each in more]
                self.add(name, word, at, {key: (value, at) for key, _, value in given})

    def sheet(self, path: Path, text: str) -> Sheet:
        sheet = read(path, file=str(path), has_nulls=True, text=text)
        for problem in sheet.problems:
            if is_secret_name(problem.path.rpartition(".")[2]):
                continue  # noted with those in plain text
            why = _ENCRYPTED if "!vault" in problem.text else problem.text.partition(";")[0]
            self.leave_out(f"{path}:{problem.line}", problem.path, why)
        return sheet

    def of_yaml(self, sheet: Sheet) -> None:
        """Also of the JSON that `ansible-inventory --list` writes."""
        if "nodes" in sheet.data:
            raise UsageError(f"{self.file}: is an inventory of ascendboot already; {_FORMS}")
        meta, mark = sheet.data.pop("_meta", {}), sheet.mark.keys.pop("_meta", Mark(1))
        for name, data in _items(sheet.data, sheet.mark):
            self.add_group(name, data, sheet.mark.at(name))
        known = dict(_items(meta, mark)).get("hostvars")
        for host, data in _items(known, mark.at("hostvars")):
            given = self.variables(data, mark.at("hostvars", host))
            at = f"{self.file}:{mark.at('hostvars', host).line}"
            self.own.setdefault(host, {"": ("", at)}).update(given)

    def add_group(self, name: str, data: Any, mark: Mark) -> None:  # noqa: ANN401
        parts = dict(_items(data, mark))
        self.parents[name] |= set()
        self.shared[name].setdefault("", ("", f"{self.file}:{mark.line}"))
        self.shared[name] |= self.variables(parts.get("vars"), mark.at("vars"))
        for word, inner in _items(parts.get("hosts"), mark.at("hosts")):
            at = mark.at("hosts", word)
            self.add(name, word, f"{self.file}:{at.line}", self.variables(inner, at))
        for child, inner in _items(parts.get("children"), mark.at("children")):
            self.parents[child].add(name)
            self.add_group(child, inner, mark.at("children", child))

    def variables(self, data: Any, mark: Mark, file: str = "") -> _Variables:  # noqa: ANN401
        found = _Variables()
        for key, value in _items(data, mark):
            at = f"{file or self.file}:{mark.at(key).line}"
            if isinstance(value, (str, int, Raw)):
                found[key] = (value.text if isinstance(value, Raw) else str(value), at)
            elif is_secret_name(key):
                found[key] = ("", at)
            elif value is not None:
                self.leave_out(at, key, "a list or mapping")
        return found

    def beside(self, folder: str, name: str) -> _Variables:
        """The variables in the files of a group or host beside the inventory, as Ansible reads."""
        tried = [Path(Path(self.file).parent, folder, name + ending) for ending in _ENDINGS]
        first = next((path for path in tried if path.exists()), tried[0])
        found = _Variables()
        for path in (p for p in (first, *sorted(first.rglob("*"))) if p.is_file()):
            inside = path.relative_to(first).parts
            is_hidden = any(part[0] == "." or part[-1] == "~" for part in inside)
            if is_hidden or (inside and path.suffix not in _ENDINGS):
                continue
            text = read_text(path, str(path))
            if text.startswith("$ANSIBLE_VAULT"):
                self.leave_out(f"{path}:1", "$ANSIBLE_VAULT", _ENCRYPTED)
            elif _CONTENT.search(text):
                sheet = self.sheet(path, text)
                found |= self.variables(sheet.data, sheet.mark, str(path))
        return found

    def add(self, group: str, word: str, at: str, variables: _Variables) -> None:
        """Add the hosts of a pattern such as w[01:03] or 192.0.2.1:2222."""
        for host in _hosts(re.sub(r"\[(\w+):(\w+)\]", r"[\1-\2]", word), at):
            own = self.own.setdefault(host.name, {"": ("", at)})
            if group == "ungrouped" and host.name in self.hosts[group]:
                raise UsageError(f"{at}: {host.name} stands in {own[''][1]} too; keep one")
            own |= {f"ansible_{k}": (str(v), at) for k, v in host.keys.items() if k != "address"}
            own |= variables
            self.hosts[group].add(host.name)

    def resolved(self) -> list[Host]:
        """The hosts; their own variables count first, then those of inner groups."""
        names = sorted({*self.parents, *self.hosts, "all"})
        sorter = TopologicalSorter({n: self.parents[n] | ({"all"} - {n}) for n in names})
        try:
            sorter.prepare()
        except CycleError as error:
            what = f"groups contain each other: {' > '.join(error.args[1])}; remove one"
            raise UsageError(f"{self.file}: {what}") from error
        order: list[str] = []
        while level := sorted(sorter.get_ready()):  # as in Ansible: by depth, then by name
            order += level
            sorter.done(*level)
        for name in reversed(order):
            for parent in self.parents[name]:
                self.hosts[parent] |= self.hosts[name]
        self.hosts["all"] = {*self.own}
        files = {name: self.beside("group_vars", name) for name in order}
        found = []
        # `export.ansible` begins with the groups `primary` and that of the whole cluster.
        one, two, *_ = (*self.parents, "", "")
        is_export = one == "primary" and all("ascendboot_server_id" in v for v in self.own.values())
        not_groups = {"all", "ungrouped", "primary", two if is_export else ""}
        first = self.hosts["primary"]
        for host, own in sorted(self.own.items(), key=lambda item: item[0] not in first):
            inside = [name for name in order if host in self.hosts[name]]
            given = _Variables()
            of_groups = [variables[name] for variables in (self.shared, files) for name in inside]
            for variables in (*of_groups, own, self.beside("host_vars", host)):
                given |= variables
            _, where = given.pop("", ("", self.file))
            if given.get("ansible_connection", ("",))[0] == "local":
                self.leave_out(where, host, "it is not reached by SSH; state its address")
                continue
            named = [name for name in inside if values.is_match(values.NAME, name)]
            for name in {*inside} - {*named}:
                self.leave_out(self.shared[name][""][1], f"group {name}", _NO_GROUP)
            groups = tuple(name for name in named if name not in not_groups)
            keys = {"address": host, **dict(self.keys(given))}
            found.append(Host(name=host, where=where, keys=keys, groups=groups))
        return found

    def keys(self, given: _Variables) -> Iterator[tuple[str, Any]]:
        """The keys of a node that variables of Ansible state."""
        known = {name.replace("ansible_ssh_", "ansible_"): name for name in given}
        for plain, name in known.items():
            value, at = given[name]
            key, usual = _KEYS.get(plain), _SUDO.get(plain)
            jump, why = self.jump(value) if plain in _ARGUMENTS else ("", _NO_KEY)
            if "{{" in value and (key or plain in (*_SUDO, *_ARGUMENTS)):
                self.leave_out(at, name, "a template of Ansible; state its value")
            elif key in _NUMBERS and not value.isdecimal():
                self.leave_out(at, name, f'"{value}" is no number')
            elif key:
                yield key, int(value) if key in _NUMBERS else value
            elif jump:
                yield "jump", jump
            elif is_secret_name(name):
                remedy = "`sudo: ask` prompts for it" if _SUDO_PASSWORD.fullmatch(plain) else _LOGIN
                self.leave_out(at, name, f"a secret; {remedy}")
            elif usual not in ("", value):
                self.leave_out(at, name, "only sudo to root is known" if usual else why)
        has_password = any(map(_SUDO_PASSWORD.fullmatch, known))
        become, _ = given.get("ansible_become", (str(has_password), ""))
        user, _ = given.get(known.get("ansible_user", ""), ("", ""))
        if become.lower() in _YES and user != "root":
            yield "sudo", "ask" if has_password else "nopasswd"

    def jump(self, arguments: str) -> tuple[str, str]:
        """The jump host in arguments of ssh, or why there is none."""
        try:
            words = shlex.split(arguments)
        except ValueError:
            return "", "its quotes do not pair up"
        commands = [match[1] for word in words if (match := _PROXY_COMMAND.fullmatch(word))]
        stated = _JUMP.search(arguments)
        jump = jump_of(commands[0]) if commands else stated and stated[1]
        if jump in (None, "none"):
            return "", f"its ProxyCommand: {NO_PROXY_COMMAND}" if commands else _NO_KEY
        if "," in jump:
            return "", "a node has one `jump`; state the hosts in ~/.ssh/config"
        # A name alone would be that of a node.
        is_name = jump not in self.own and not set(jump) & set("@.:")
        return f"{jump}:{SSH_PORT}" if is_name else jump, ""


def _unquoted(value: str) -> str:
    """The value without its own quotes; those inside stay."""
    return value[1:-1] if value[:1] in ("'", '"') and value[0] == value[-1] else value


def _items(data: Any, mark: Mark) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any YAML
    """The items of a mapping, also those without a value, or of a list as keys without one."""
    if isinstance(data, dict):
        yield from ((key, data.get(key)) for key in mark.keys)
    elif isinstance(data, list):
        yield from ((str(key), None) for key in data)


def _slots(match: re.Match[str]) -> str:
    """The slots of a hostfile as a variable; the most are left out, and so are none."""
    is_limit, number = match.groups()
    return "" if is_limit or number == "0" else f" slots={number}"


def ansible_inventory(cluster: Cluster) -> dict[str, Any]:
    """The document that such a script prints for `--list`: groups, and the variables of all hosts.

    Groups are the cluster, `primary`, and the groups of the inventory. They are named as Ansible
    wants: letters, digits and _.
    """
    groups: dict[str, list[str]] = {"primary": [cluster.primary.name]}
    for node in cluster.nodes:
        for name in (cluster.name, *node.groups):
            group = re.sub(r"^(?=\d)|\W", "_", name, flags=re.ASCII)
            groups.setdefault(group, []).append(node.name)
    hostvars = {node.name: _variables(node) for node in cluster.nodes}
    return {"_meta": {"hostvars": hostvars}} | {name: {"hosts": groups[name]} for name in groups}


def _variables(node: Node) -> dict[str, object]:
    ssh = node.ssh
    variables: dict[str, object] = {
        "ansible_host": node.address,
        "ansible_port": ssh.port,
        "ansible_user": ssh.user,
        "ascendboot_cluster_address": node.cluster_address,
        "ascendboot_server_id": node.server_id,
        "ansible_ssh_private_key_file": ssh.identity and str(Path(ssh.identity).absolute()),
        "ansible_become": ssh.sudo != "none",
        "ansible_ssh_common_args": ssh.jump and f"-o ProxyJump={shlex.quote(ssh.jump)}",
        "ascendboot_container": node.container,
    }
    return {name: value for name, value in variables.items() if value}
