#!/usr/bin/env python3
"""Runs the conformance cases: each in a database of its own, against the server the PG* environment names.

Exit and last line: 'N passed, N failed'. Cases named in pending.txt may fail; one that passes is reported, and with --strict fails.
Cases of an area that areas.txt does not list may end in a refusal, 0A000 (not supported); anything else is a failure there too.
"""
import argparse
import fnmatch
import glob
import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from case import Case, Failure
from pq import ConnectionLost, Session, SqlError, TimeLimit

HERE = os.path.dirname(os.path.abspath(__file__))
UTF8_DATABASE = 'CREATE DATABASE "%s" TEMPLATE %s ENCODING UTF8 LC_COLLATE \'C\' LC_CTYPE \'C\''


def lines(name):
    """Lines of a list beside this file, without comments: [first word, rest]."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return [(line.split(None, 1) + [""])[:2] for line in file if line.strip() and not line.startswith("#")]


def admin(sql, dbname="postgres"):
    session = Session(dbname, time.monotonic() + 60)
    try:
        session.run(sql)
    finally:
        session.close()


def drop(dbname):
    for attempt in range(20):
        try:
            return admin('DROP DATABASE IF EXISTS "%s" WITH (FORCE)' % dbname)
        except (SqlError, ConnectionLost, TimeLimit):
            time.sleep(0.2)


def create(dbname, template):
    """A copy of the template; built from scratch when something holds the template."""
    try:
        admin(UTF8_DATABASE % (dbname, template))
    except SqlError as e:
        if e.state != "55006":
            raise
        admin(UTF8_DATABASE % (dbname, "template0"))
        admin("CREATE EXTENSION stream_ext", dbname)


def run_one(number, spec, options):
    """(outcome, message): outcome is passed, refused or failed."""
    dbname = "case_%d_%d" % (os.getpid(), number)
    case = None
    try:
        create(dbname, options.template)
        case = Case(spec, dbname, options.timeout, options.query_options)
        case.run()
        return "passed", ""
    except (Failure, SqlError, ConnectionLost, TimeLimit) as e:
        outcome = "refused" if getattr(e, "state", None) == "0A000" else "failed"
        return outcome, "%s: %s" % (case.where if case else "create database", " ".join(str(e).split()))
    finally:
        if case:
            case.close()
        drop(dbname)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=[os.path.join(HERE, "cases")])
    parser.add_argument("--filter", default="", help="regular expression over area/name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=30, help="seconds a case may take")
    parser.add_argument("--strict", action="store_true", help="a pending case that passes counts as failed")
    parser.add_argument("--query-options", type=json.loads, default={}, metavar="JSON", help="options added to those of every query")
    parser.add_argument("--verbose", action="store_true", help="name every case")
    options = parser.parse_args()

    specs = []
    for path in options.files:
        for file in sorted(glob.glob(os.path.join(path, "*.json"))) if os.path.isdir(path) else [path]:
            with open(file, encoding="utf-8") as f:
                document = json.load(f)
            specs += document["cases"] if isinstance(document, dict) else document
    specs = [s for s in specs if re.search(options.filter, s["area"] + "/" + s["name"])]
    areas = [area for area, _ in lines("areas.txt")]
    pending = lines("pending.txt")

    options.template = "template_%d" % os.getpid()
    admin(UTF8_DATABASE % (options.template, "template0"))
    count = dict.fromkeys(("passed", "failed", "refused", "pending"), 0)
    try:
        admin("CREATE EXTENSION stream_ext", options.template)
        with ThreadPoolExecutor(options.jobs) as pool:
            for spec, (outcome, message) in zip(specs, pool.map(run_one, range(len(specs)), specs, [options] * len(specs))):
                name = spec["area"] + "/" + spec["name"]
                is_pending = any(fnmatch.fnmatchcase(name, pattern) for pattern, _ in pending)
                if outcome == "passed" and is_pending:
                    print("PASSES, though pending.txt lists it: " + name)
                    outcome = "failed" if options.strict else "passed"
                elif outcome == "refused" and spec["area"] in areas and not is_pending:
                    outcome = "failed"
                elif outcome == "failed" and is_pending:
                    outcome = "pending"
                count[outcome] += 1
                if options.verbose or (outcome == "failed" and message):
                    print("%-8s %s%s" % (outcome if outcome != "failed" else "FAILED", name, ": " + message if message else ""), flush=True)
    finally:
        drop(options.template)
    if not specs:
        print("no case selected")
        count["failed"] = 1
    if count["refused"] or count["pending"]:
        print("%d refused as not supported, %d pending (test/conformance/pending.txt)" % (count["refused"], count["pending"]))
    print("%d passed, %d failed" % (count["passed"], count["failed"]))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
