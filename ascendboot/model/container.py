"""The way into a container: which engine knows it, and what its words mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

OWN_ONLY = "podman shows each user nothing but his own containers"


@dataclass(frozen=True)
class Inside:
    """From a node's host side into one of its containers."""

    engine: str
    """The program `docker` or `podman`, as it is called on the host side."""
    container: str

    @property
    def engine_name(self) -> str:
        """The engine as people say it."""
        return PurePosixPath(self.engine).name

    def argv(self, *words: str) -> tuple[str, ...]:
        """What to run on the host side so that `words` run in the container, stdin passed on.

        BASH_ENV: some images set it, and bash would read that file before any of our scripts.
        """
        return (self.engine, "exec", "-i", "-e", "BASH_ENV=", self.container, *words)

    def remedy(self, words: str) -> str:
        """What an operator can do when the engine refuses with these words."""
        said = words.lower()
        engine, name = self.engine_name, self.container
        for marks, remedy in (
            (_DENIED, f"let this user use {engine} (group {engine}), or log in as root"),
            (_NO_SERVICE, f"start the engine: systemctl start {engine}"),
            (_PAUSED, f"let it go on: {engine} unpause {name}"),
            (_STOPPED, f"start it: {engine} start {name}"),
            (_ABSENT, "start it, or correct `container`"),
            (_ROOTLESS, f"log in as the user who started it; {OWN_ONLY}"),
            (_NO_FOLDER, f"make its working directory again: {engine} exec -w / {name} mkdir -p …"),
            (_NO_BASH, "install bash in its image"),
            (_NO_ENGINE, f"is {engine} still on the host side? Run setup, which looks again"),
        ):
            if any(mark in said for mark in marks):
                return remedy
        return f"look at it: {engine} ps -a"


# docker 20.10 to 28 and podman 4.3 say it in these words
_DENIED = ("permission denied while trying to connect",)
_NO_SERVICE = ("cannot connect to the docker daemon", "is the docker daemon running")
_PAUSED = ("is paused", "state paused", "unpause")
_STOPPED = ("is not running", "running containers", "state improper", "is restarting")
_ABSENT = ("no such container", "no container with name or id", "no such object")
_ROOTLESS = ("rootless",)
_NO_FOLDER = ('workdir "', "chdir to cwd", "chdir `", "current working directory")
_NO_BASH = ('"bash": executable file', "executable file `bash`")
_NO_ENGINE = ("no such file or directory", "not found")


def is_absent(words: str) -> bool:
    """Whether an engine says by these words that it has no such container."""
    return any(mark in words.lower() for mark in _ABSENT)
