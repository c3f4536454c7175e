#!/usr/bin/env bash
# Functions for supervise.sh and supervise-watch.sh in a job that needs every rank of every node. Each
# returns whether the job continues, and otherwise sets `why`.
# shellcheck disable=SC2034,SC2154 # variables of the callers
# on_report LINE: after a line about another node.
on_report() { why=$1; return 1; }
# on_node_lost NUMBER CODE: after the ssh to another node has ended with an error.
on_node_lost() { why="${nodes[$1]}: lost it: ssh ended with $2"; return 1; }
# on_events: after the events of this node were read.
on_events() { why=$failed; [ -z "$failed" ]; }
