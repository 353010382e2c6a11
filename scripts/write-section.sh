#!/bin/sh
# Replaces a section of a page by standard input: what is between the lines <!-- NAME begin … --> and <!-- NAME end -->.
# usage: write-section.sh PAGE NAME
set -eu
python3 -c '
import re, sys

page, name = sys.argv[1:]
text = open(page).read()
pattern = rf"(<!-- {name} begin[^\n]*-->\n).*?(<!-- {name} end -->)"
new, count = re.subn(pattern, lambda it: it[1] + "\n" + sys.stdin.read().strip() + "\n\n" + it[2], text, flags=re.DOTALL)
if count != 1:
    sys.exit(f"{page}: expected one section {name}, found {count}")
open(page, "w").write(new)
' "$1" "$2"
