"""Everything that setup writes for OpenSSH is known to release 7.4 (CentOS 7) and later."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ascendboot.checks.launchers import SSH_OPTIONS, SSHD_OPTIONS
from tests.engine.simulated import BASE, Simulation

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/openssh"
OLDEST = (7, 4)
# The options of each program in the getopt() of V_7_4_P1.
LETTERS = {
    "ssh": set("1246abcefgiklmnopqstvxACDEFGIJKLMNOPQRSTVwWXYy"),
    "sshd": set("CEbcfghkopu46DQRTdeiqrt"),
    "ssh-keygen": set("ABHLQXceghiklopquvxyCDEFGIJKMNOPRSTVWZabfgjmnrstz"),
}


def release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def keywords(program: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """By keyword the first release that knows it, and the last or `-`."""
    lines = (DATA / "keywords.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line.startswith(f"{program} ")]
    return {keyword: (release(first), last) for _, keyword, first, last in rows}


@pytest.fixture(scope="module")
def settings() -> dict[str, set[tuple[str, str]]]:
    """All settings that setup writes, by program: keyword and value."""
    found: dict[str, set[tuple[str, str]]] = {"sshd": set(), "ssh": set()}
    texts = set()
    plain = [Simulation.of(2, trust=trust) for trust in ("ca", "pinned")]
    for cluster in (*plain, Simulation.with_containers(2, ssh_via="engine")):
        assert cluster.walk().exit_code == 0
        for side in (side for node in cluster.nodes for side in (node, node.work)):
            for path, program in (("sshd/sshd_config", "sshd"), ("trust/ssh_config", "ssh")):
                if file := side.transport.files.get(f"{BASE}/{path}"):
                    texts.add((program, file.content.decode()))
    for program, text in texts:
        lines = (line.strip() for line in text.splitlines())
        told = (line.partition(" ")[::2] for line in lines if line and line[0] != "#")
        found[program] |= {(word.lower(), value) for word, value in told}
    return found


@pytest.mark.parametrize("program", ["sshd", "ssh"])
def test_13_every_keyword_is_known_from_7_4_on(
    program: str, settings: dict[str, set[tuple[str, str]]]
) -> None:
    known = keywords(program)
    said = {keyword for keyword, _ in settings[program]}
    assert len(said) > 20
    assert {word for word in said if word not in known or known[word][0] > OLDEST} == set()
    assert {word for word in said if known[word][1] != "-"} == set()


@pytest.mark.parametrize(("program", "stated"), [("sshd", SSHD_OPTIONS), ("ssh", SSH_OPTIONS)])
def test_13_the_finding_names_what_older_releases_lack(
    program: str, stated: dict[str, tuple[int, int]], settings: dict[str, set[tuple[str, str]]]
) -> None:
    known = keywords(program)
    late = {word: known[word][0] for word, _ in settings[program] if known[word][0] > (6, 5)}
    named = {option.partition(" ")[0].lower(): since for option, since in stated.items()}
    assert late.items() <= named.items()
    assert max(stated.values()) <= OLDEST


def test_13_and_24_every_algorithm_is_known_to_7_4_and_none_is_weak(
    settings: dict[str, set[tuple[str, str]]],
) -> None:
    known = set((DATA / "7.4p1-algorithms.txt").read_text().split())
    lists = {word: value.split(",") for word, value in settings["sshd"] if "," in value}
    assert set(lists) == {
        *("kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedkeytypes", "ciphers", "macs")
    }
    [of_client] = {value for word, value in settings["ssh"] if word == "hostkeyalgorithms"}
    names = {name for value in lists.values() for name in value}
    assert names | {of_client} <= known
    assert of_client in lists["hostkeyalgorithms"]
    assert not any(re.search("sha1|md5|cbc|rsa|dss|arcfour|group", name) for name in names)


def test_24_forwarding_is_off_and_only_keys_are_accepted(
    settings: dict[str, set[tuple[str, str]]],
) -> None:
    wanted = {
        *(("disableforwarding", "yes"), ("maxauthtries", "3"), ("permituserenvironment", "no")),
        *(("authenticationmethods", "publickey"), ("challengeresponseauthentication", "no")),
        *(("permittty", "no"), ("permituserrc", "no"), ("allowstreamlocalforwarding", "no")),
        # Before 10.0 DisableForwarding does not cover these.
        *(("allowagentforwarding", "no"), ("x11forwarding", "no")),
    }
    assert wanted <= settings["sshd"]


CALL = re.compile(r"(?<![\w/.`\"'-])(ssh-keygen|ssh|\"\$sshd\") (-[^`\n]*)")
OPTION = re.compile(r"(?<!\S)-([A-Za-z0-9])(?![\w-])")
SETTING = re.compile(r"-o (\w+)=")


def test_13_every_option_on_a_command_line_is_known_to_7_4() -> None:
    calls = [
        (found[1].strip('"$'), found[2])
        for folder in ("ascendboot", "templates")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh", ".j2")
        for found in CALL.finditer(path.read_text().replace("{{ ssh | q }}", "ssh"))
    ]
    assert {program for program, _ in calls} == set(LETTERS)
    for program, words in calls:
        own = re.split(r"[|;&<>]| '", words)[0]  # not what another program is given
        assert set(OPTION.findall(own)) <= LETTERS[program], (program, own)
        assert all(w.lower() in keywords("ssh") for w in SETTING.findall(own)), own


def test_13_the_public_key_lies_beside_the_private_key_of_a_certificate() -> None:
    """OpenSSH 7.4 signs with a certificate of `CertificateFile` only if it finds this file."""
    cluster = Simulation.of(2, trust="ca")
    cluster.walk()
    primary = cluster.nodes[0]
    assert primary.text("trust/cluster_key.pub") == primary.keys["trust/cluster_key"] + "\n"
    primary.keys["trust/cluster_key"] = cluster.nodes[1].keys["sshd/host_key"]
    cluster.walk()
    assert primary.text("trust/cluster_key.pub") == primary.keys["trust/cluster_key"] + "\n"
