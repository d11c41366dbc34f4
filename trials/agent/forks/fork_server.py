"""A process that has imported what trials need, and forks one child for each: ``python fork_server.py CONFIG``.

Started without any flag, so that its interpreter is in the state in which a trial's would be.
"""

import sys


def main() -> None:
    """Serve until told to end. In a forked child: be the trial, and never return."""
    at_start = frozenset(sys.modules)
    if not sys.flags.safe_path:
        del sys.path[0]  # this file's folder; in a child the script's own takes its place
    from trials.agent.forks.child import become
    from trials.agent.forks.serving import serve

    start = serve(sys.argv[1], at_start=at_start)
    # Only a child comes here with something to start. The frames of the server are gone, and those of the trial's
    # script follow this one.
    if start is not None:
        become(start)


if __name__ == "__main__":
    main()
