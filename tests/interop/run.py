#!/usr/bin/env python3
"""Real Envoy and real gRPC through the relay; README.md in this folder describes the cases.

usage: tests/interop/run.py [--list] [--only PATTERN] [--long] [--direct] [--jobs N] [--sluice PATH]

Runs target/debug/sluice, which `cargo build` or `cargo test` has built. Needs Python 3.11 with venv and, on the first
run, the package registries; the packages go into target/interop. A peer that can't be installed is skipped, with a
loud line.
"""

import argparse
import fnmatch
import os
import pathlib
import sys
import time
import traceback
from concurrent import futures

import packages


def cases():
    """All cases. The modules need the packages, so the imports are here."""
    import client_status
    import envoy_collections
    import envoy_mesh
    import envoy_nacks
    import envoy_on_demand
    import envoy_order
    import envoy_outage
    import envoy_secrets
    import envoy_ttl
    import envoy_types
    import envoy_variants
    import envoy_yaml
    import exemplars
    import grpc_authorities
    import grpc_clients
    import grpc_fallback
    import grpc_many
    import grpc_story
    import ledger
    import load_judges
    import loads
    import quickstart
    import replica_faults
    import replicas
    import rollout_crashes
    import rollout_moves
    import rollout_newcomers
    import rollouts
    import tls
    import tls_rotation
    import tls_upstream
    import upgrades

    # The slowest cases come first, so that none runs alone at the end.
    first = (upgrades, tls_rotation, rollout_crashes, rollout_moves, rollout_newcomers, rollouts, replicas, replica_faults, load_judges, ledger, grpc_story, quickstart, envoy_ttl, grpc_authorities, grpc_clients, grpc_fallback, grpc_many)
    rest = (client_status, exemplars, tls, tls_upstream, envoy_order, envoy_variants, envoy_types, envoy_on_demand, envoy_secrets, envoy_collections, envoy_nacks, envoy_yaml)
    modules = (*first, *rest, envoy_outage, envoy_mesh, loads)
    return [case for module in modules for case in module.CASES]


def play(case, sluice, direct):
    """Runs a case: whether it passed, and its evidence."""
    from harness import Stage

    start = time.monotonic()
    with Stage(sluice, direct) as stage:
        try:
            case.play(stage)
        except Exception:
            return False, f"FAILED {case.name}\n{traceback.format_exc()}{stage.evidence()}\n"
    return True, f"ok {case.name} ({time.monotonic() - start:.1f} s)"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the names of the cases and run none")
    parser.add_argument("--only", metavar="PATTERN", help="those whose name contains it, or matches its * and ?")
    parser.add_argument("--long", action="store_true", help="those that are left out otherwise, as they take long")
    parser.add_argument("--direct", action="store_true", help="without the relay: judges the cases themselves")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time (default: 4)")
    parser.add_argument("--sluice", type=pathlib.Path, default=packages.TARGET / "debug" / "sluice")
    return parser.parse_args()


def run(options, missing):
    chosen = [case for case in cases() if not (options.direct and case.relay_only)]
    if options.only:
        pattern = options.only if set("*?") & set(options.only) else f"*{options.only}*"
        chosen = [case for case in chosen if fnmatch.fnmatchcase(case.name, pattern)]
    else:
        chosen = [case for case in chosen if case.long == options.long]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        sys.exit(f"no case is called {options.only}; --list names them")
    sluice = options.sluice.resolve()
    if not options.direct and not sluice.is_file():
        sys.exit(f"{sluice} is not there: `cargo build` makes it")
    passed = failed = skipped = 0
    with futures.ThreadPoolExecutor(max_workers=options.jobs) as pool:
        under_way = []
        for case in chosen:
            reasons = [f"{name} can't be had: {missing[name]}" for name in sorted(case.needs) if missing[name]]
            if reasons:
                skipped += 1
                print(f"!!!!!!!! SKIPPED {case.name}: {'; '.join(reasons)}", flush=True)
            else:
                under_way.append(pool.submit(play, case, sluice, options.direct))
        for done in futures.as_completed(under_way):
            is_passed, text = done.result()
            passed += is_passed
            failed += not is_passed
            print(text, flush=True)
    print(f"interop: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def main():
    options = arguments()
    missing = packages.missing()
    if missing["grpc"]:
        # Every case needs these packages.
        print(f"!!!!!!!! SKIPPED everything: grpc can't be had: {missing['grpc']}", flush=True)
        print("interop: 0 passed, 0 failed, 1 skipped")
        return 0
    if pathlib.Path(sys.prefix).resolve() != packages.PYTHON.parent.parent.resolve():
        os.execv(packages.PYTHON, [packages.PYTHON, *sys.argv])
    return run(options, missing)


if __name__ == "__main__":
    sys.exit(main())
