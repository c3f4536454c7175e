"""What in an environment is a secret, and texts that show none."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_NAME = (
    r"[A-Z0-9_]{0,200}(?:TOKEN(?!IZ)|SECRET|PASSW|PASS(?![A-Z0-9])|CREDENTIAL|PRIVATE_?KEY|API_?KEY"
    r"|ACCESS_?KEY|(?<![A-Z0-9])(?:PWD|KEY)(?![A-Z0-9]))[A-Z0-9_]{0,200}"
)
_URL = r"(?<![a-z0-9])[a-z][a-z0-9+.-]{0,20}://[^\s/@:]*:[^\s/@]+@|https?://[^\s/@]+@"
"""A user alone is no secret (ssh://git@host), but on the web a token stands in that place."""
_KNOWN = r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|AKIA)[A-Za-z0-9_-]{16,}"
"""How the tokens of well-known services begin."""
_IS_NAME = re.compile(_NAME, re.IGNORECASE)
_IS_VALUE = re.compile(f"{_URL}|{_KNOWN}", re.IGNORECASE)
_SHOWN = re.compile(
    rf"(?P<name>(?<![A-Za-z0-9_]){_NAME}\s*[=:]\s*)\S.*|(?P<url>{_URL})|{_KNOWN}", re.IGNORECASE
)
MASK = "***"
_SHORTEST = 4
_PLAIN = re.compile(
    r"true|false|none|null|auto|[0-9]{1,5}|running|succeeded|failed|interrupted|stopped|hung|lost"
    r"|not_started|rank|node|alike|left|one_of|launcher|mpirun|horovod|torchrun",
    re.IGNORECASE,
)
"""What stands in half of all texts, and the words by which our own records are read again."""


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, as `HF_TOKEN` does; `…_FILE` is a place."""
    is_place = name.upper().endswith(("_FILE", "_PATH", "_DIR"))
    return _IS_NAME.fullmatch(name) is not None and not is_place


def is_secret_value(value: str) -> bool:
    """Whether a value shows what it is: an address with a password, a token of a known service."""
    return _IS_VALUE.search(value) is not None


def without_secrets(text: str) -> str:
    """A text from somewhere else without what looks like a secret in it."""
    return _SHOWN.sub(lambda match: f"{match['name'] or ''}{MASK}", text)


def masked(text: str, secrets: Iterable[str]) -> str:
    """A text without these values, however they were quoted in it."""
    for secret in secrets:
        for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], shlex.quote(secret)):
            text = text.replace(form, MASK)
    return text


def to_mask(values: Iterable[str]) -> tuple[str, ...]:
    """What of these secret values must stand nowhere, the longest first."""
    texts = set(values)
    for userinfo in re.findall(r"://([^\s/@]+)@", "\n".join(texts)):
        texts |= {userinfo, userinfo.partition(":")[2]}
    secrets = (text for text in texts if len(text) >= _SHORTEST and not _PLAIN.fullmatch(text))
    return tuple(sorted(secrets, key=lambda text: (-len(text), text)))


def masked_json(value: Any, secrets: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON value
    """The same without these secrets in any of its texts; its keys and numbers stay."""
    if isinstance(value, str):
        return masked(value, secrets)
    if isinstance(value, Mapping):
        return {key: masked_json(of, secrets) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [masked_json(item, secrets) for item in value]
    return value
