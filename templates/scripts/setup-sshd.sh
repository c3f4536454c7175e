#!/usr/bin/env bash
# Starts the cluster's sshd, in place of one that runs; its sessions go on.
# sshd reports a taken port only in its log: where no pid file appears, the end of the log is shown.
# `b` is the cluster's folder, `digest` the SHA-256 of the configuration, `sshd` the program.
: "${b:?}" "${digest:?}" "${sshd:?}"
# shellcheck source=templates/scripts/sshd-functions.sh
. sshd-functions.sh
cd -- "$b/sshd" || exit 1
printf '%s  sshd_config\n' "$digest" | sha256sum -c --status || {
  echo "sshd_config is not what was written" >&2; exit 1; }
if [ "$(id -u)" = 0 ] && [ ! -d /run/sshd ]; then
  echo /run/sshd >>made && install -d -m 755 /run/sshd
fi
"$sshd" -t -f "$b/sshd/sshd_config" || exit 1
for pid in $(sshds_of_ours ''); do
  kill -TERM "$pid"
  for _ in {1..100}; do is_sshd_of_ours "$pid" || break; sleep 0.05; done
done
rm -f -- sshd.pid started
"$sshd" -f "$b/sshd/sshd_config" -E "$b/sshd/sshd.log" 3>&- </dev/null >/dev/null 2>&1
for _ in $(seq 100); do
  pid=$(cat sshd.pid 2>/dev/null) && [ -n "$pid" ] && break
  sleep 0.05
done
start=$(start_of "$pid")
if [ -z "$pid" ] || [ -z "$start" ]; then
  tail -n 3 sshd.log | tr -d '\r' | paste -s -d '|' - >&2
  exit 1
fi
sha=$({ cat sshd_config; ssh-keygen -y -P '' -f host_key | cut -d' ' -f1,2; } | sha256sum)
cert=$({ sha256sum <host_key-cert.pub | cut -d' ' -f1; } 2>/dev/null)
echo "$pid $start ${sha%% *} ${cert:--}" >started.new && mv -f started.new started
