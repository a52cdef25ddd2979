#!/usr/bin/env bash
# Two hosts on this machine: the network namespaces NAME-a and NAME-b and a link between them. Needs root.
#   hosts.sh NAME up [RATE]    the link carries RATE, as tc has it ("100mbit"), or whatever it can
#   hosts.sh NAME run ARG..    mpirun ARG.., in NAME-a; ranks go to both
#   hosts.sh NAME cut          the link is dead
#   hosts.sh NAME ranks        the ranks that are alive, by process
#   hosts.sh NAME down         ends what runs there and removes both
set -euo pipefail
name=$1 action=$2
shift 2

on() {  # HOST COMMAND..: with its own network and host name
  local host=$1
  shift
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

case $action in
  up)
    ip netns add "$name-a"
    ip netns add "$name-b"
    ip link add "$name-a" netns "$name-a" type veth peer name "$name-b" netns "$name-b"
    for host in a b; do
      ip -n "$name-$host" link set dev lo up
      ip -n "$name-$host" link set dev "$name-$host" up
      [ $# = 0 ] || tc -n "$name-$host" qdisc add dev "$name-$host" root tbf rate "$1" burst 128kb latency 100ms
    done
    ip -n "$name-a" address add 10.77.0.1/24 dev "$name-a"
    ip -n "$name-b" address add 10.77.0.2/24 dev "$name-b"
    ;;
  run)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export ASAN_OPTIONS=detect_leaks=0  # Open MPI's own
    on "$name-a" mpirun --mca plm_rsh_agent "$0 $name agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
      --mca oob_tcp_if_include 10.77.0.0/24 --host 10.77.0.1,10.77.0.2 --bind-to none "$@"
    ;;
  agent)  # what mpirun calls instead of ssh: HOST COMMAND..
    shift
    on "$name-b" sh -c "$*"
    ;;
  ranks)
    for pid in $(ip netns pids "$name-a") $(ip netns pids "$name-b"); do
      [ "$(cat "/proc/$pid/comm" 2> /dev/null)" != longshot ] || echo "$pid"
    done
    ;;
  cut) ip -n "$name-a" link set dev "$name-a" down ;;
  down)
    for host in a b; do
      ip netns pids "$name-$host" 2> /dev/null | xargs -r kill -9 || true
      ip netns del "$name-$host" 2> /dev/null || true
    done
    ;;
esac
