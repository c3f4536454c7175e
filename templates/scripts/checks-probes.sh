#!/usr/bin/env bash
# Tries TCP connections and pings between NPUs, side by side. `limit` is for one TCP connection,
# `call_limit` for one ping, both in seconds; `jobs` is how many TCP connections go on at once.
# Argument: after how many seconds no further ping begins. Standard input has a line per probe:
# `tcp NUMBER ADDRESS PORT` or `ping NUMBER DEVICE ADDRESS`, the latter also as `hccs_ping`.
: "${limit:?}" "${call_limit:?}" "${jobs:?}"
until_s=$1
left=100 enough=$((until_s + 60)) # read by vendor-tools.sh
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/vendor-tools.sh
. vendor-tools.sh
# A connection needs no program but bash: /dev/tcp is its own.
tcp_probe() {
  local reason code=0
  # shellcheck disable=SC2016
  reason=$(timeout -k 1 "$limit" bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>&1) || code=$?
  reason=${reason##*$'\n'}
  printf '%s %s %s\n' "$1" "$code" "${reason##*: }"
}
export limit; export -f tcp_probe
tcp=; pings=()
while read -r kind rest; do
  case $kind in *ping) pings+=("$kind $rest") ;; tcp) tcp+="$rest"$'\n' ;; esac
done
exec 4< <(printf %s "$tcp" | xargs -r -P "$jobs" -L 1 bash -c 'tcp_probe "$@"' _)
if [ "${#pings[@]}" = 0 ]; then section hccn_tool 0 'not needed'
elif locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for ping in "${pings[@]}"; do
    read_uptime; [ "$((up - began))" -lt "$until_s" ] || break
    read -r way number id address <<<"$ping"
    query_vendor "ping/$number" merged timeout -k 1 "$call_limit" \
      "$found" -i "$id" "-$way" -g address "$address"
  done
else
  section hccn_tool 127 'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
section tcp 0 "$(cat <&4)"
section end 0 ''
