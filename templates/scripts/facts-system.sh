#!/usr/bin/env bash
# Queries the system of a host or container: names, user, interfaces, kernel ports.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
content hostname /proc/sys/kernel/hostname
content boot_id /proc/sys/kernel/random/boot_id
query namespace readlink /proc/self/ns/net
query uname uname -srm
if name=$(id -un 2>/dev/null); then section user 0 "$name"
else section user 1 "user id $EUID has no name; add it to /etc/passwd, in a container of its image"
fi
section uid 0 "$EUID"
section home 0 "${HOME-}"
query interfaces ip addr
content port_range /proc/sys/net/ipv4/ip_local_port_range
content reserved_ports /proc/sys/net/ipv4/ip_local_reserved_ports
section end 0 ''
