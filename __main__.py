"""`python -m headcount`, which launchers of several processes can start."""

from headcount.cli import main

main(prog_name="headcount")
