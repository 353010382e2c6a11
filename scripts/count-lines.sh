#!/usr/bin/env bash
# Counts the lines of the repository by kind, per crate and folder, with totals: shipped Rust, Rust tests, JavaScript,
# documents.
#
# scripts/count-lines.sh [COMMIT]
#
# COMMIT  count in this commit instead of the working tree
#
# All lines count, including comments and blank lines. Shipped Rust is what lies below crates/*/src, without the items
# after #[cfg(test)]: modules in files of their own, and items within a file. All other Rust counts as tests:
# integration tests, benches, examples, fuzz targets, programs for comparison. JavaScript tests are web/test and
# web/browser. Documents are Markdown. An item ends at the bracket with the indentation of its first line, so the code
# must be formatted (`cargo fmt`).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    git archive "$1" | tar -x -C "$folder"
    cd "$folder"
    list() { find . -type f -printf '%P\n'; }
else
    list() { git ls-files --cached --others --exclude-standard; }
fi

list | grep -E '\.(rs|js|mjs|ts|md)$' | grep -v '^fuzz/corpus/' | sort | awk '
    # Reads a Rust file: counts its lines in shipped[file] and tests[file], and records in is_test_module the paths,
    # without .rs, of the modules declared after #[cfg(test)].
    function read_rust(file,    line, place, folder) {
        shipped[file] = tests[file] = 0
        place = "shipped"
        folder = file
        if (!sub(/\/(lib|main|mod)\.rs$/, "", folder)) sub(/\.rs$/, "", folder)
        while ((getline line < file) > 0) {
            if (place == "shipped" && line ~ /^ *#\[cfg\(test\)\]$/) {
                place = "attribute"
                match(line, /^ */)
                indent = substr(line, 1, RLENGTH)
            } else if (place == "attribute" && line !~ /^ *#\[/) {
                place = "item"
                if (line ~ /^ *(pub(\([a-z]+\))? )?mod [a-z0-9_]+;$/) {
                    sub(/;$/, "", line)
                    sub(/^.*mod /, "", line)
                    is_test_module[folder "/" line] = 1
                    line = indent ";"
                }
                if (line ~ /[;,}]$/) place = "end"
            } else if (place == "item" && line ~ ("^" indent "[})\\]][;,]?$")) {
                place = "end"
            }
            if (place == "shipped") shipped[file]++; else tests[file]++
            if (place == "end") place = "shipped"
        }
        close(file)
    }

    # Whether the file, or a module that contains it, is for tests only.
    function is_test_file(file,    path) {
        path = file
        sub(/\.rs$/, "", path)
        while (path ~ /\/src\//) {
            if (path in is_test_module) return 1
            sub(/\/[^\/]*$/, "", path)
        }
        return 0
    }

    function add(column, count) {
        sum[row, column] += count
        sum["total", column] += count
        if (!(row in is_row)) {
            is_row[row] = 1
            rows[++row_count] = row
        }
    }

    function count_lines(file,    line, count) {
        bytes = 0
        while ((getline line < file) > 0) {
            count++
            bytes += length(line) + 1
        }
        close(file)
        return count
    }

    function print_row(name,    column) {
        printf "%-12s", name
        for (column = 1; column <= 6; column++)
            printf "%12s", sum[name, column] ? sprintf("%.0f", sum[name, column]) : "-"
        print ""
    }

    { files[++file_count] = $0 }
    /^crates\/[^\/]*\/src\/.*\.rs$/ { read_rust($0) }

    END {
        for (i = 1; i <= file_count; i++) {
            file = files[i]
            if (split(file, parts, "/") == 1) row = "(root)"
            else row = parts[1] == "crates" ? parts[2] : parts[1]
            if (file in shipped && !is_test_file(file)) {
                add(1, shipped[file])
                add(2, tests[file])
                continue
            }
            lines = count_lines(file)
            if (file ~ /\.rs$/) add(2, lines)
            else if (file ~ /\.md$/) { add(5, lines); add(6, bytes / 1000) }
            else if (file ~ /^web\/(test|browser)\//) add(4, lines)
            else add(3, lines)
        }
        printf "%-12s%12s%12s%12s%12s%12s%12s\n",
            "", "shipped Rust", "its tests", "JavaScript", "its tests", "documents", "their kB"
        for (i = 1; i <= row_count; i++) print_row(rows[i])
        print_row("total")
    }'
