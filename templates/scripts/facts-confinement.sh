#!/usr/bin/env bash
# Queries what SELinux and AppArmor refuse on the host side.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
enforcing=; { read -r enforcing; } 2>/dev/null </sys/fs/selinux/enforce
section enforcing 0 "$enforcing"
# Without permission dmesg fails: then no denial is known.
section denials 0 "$(timeout -k 1 5 dmesg 2>/dev/null </dev/null |
  grep -aE 'apparmor="DENIED"|avc: +denied' | tail -n 20 | cut -c -400)"
section end 0 ''
