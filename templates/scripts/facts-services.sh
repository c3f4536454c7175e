#!/usr/bin/env bash
# Queries what a host serves: listening ports, its sshd, /etc/hccn.conf.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
query listeners ss -Hltnp
content hccn_conf /etc/hccn.conf
if locate sshd /usr/sbin/sshd /usr/local/sbin/sshd /usr/lib/ssh/sshd; then
  section sshd 0 "$found"
  query_both sshd_version "$found" -V
  # Only root, and an sshd of root, can read this. Nothing of the entry is printed.
  entry=; [ "$EUID" != 0 ] || entry=$(getent shadow "$(id -un)" 2>/dev/null)
  case ${entry#*:} in '!'*) state=locked ;; *) state=open ;; esac
  section account 0 "$state"
else
  section sshd 127 'sshd is neither on PATH nor in /usr/sbin'
fi
section end 0 ''
