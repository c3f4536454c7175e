# shellcheck shell=bash
# Functions about the cluster's own table of nft, `table`. Other tables are never changed.
: "${table:?}"
# Sets `nft`, and either `listing` or the `state` without a listing.
list_table() {
  nft=$(type -P nft) || nft=/usr/sbin/nft
  [ -x "$nft" ] || { state=missing; return 1; }
  listing=$(LC_ALL=C "$nft" list table inet "$table" 2>&1 </dev/null) && return
  state=${listing%%$'\n'*} state="refused ${state//[[:cntrl:]]/ }" state=${state:0:200}
  case $listing in *'No such file or directory'*) state=absent ;; esac
  return 1
}
sum_of_table() {
  local sum
  sum=$(sha256sum <<<"$listing")
  echo "${sum%% *}"
}
