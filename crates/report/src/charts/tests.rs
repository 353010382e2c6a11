//! Charts of small tables.

use std::{fs, path::Path};

use super::chart;
use super::tables::{figure, number, tables};

#[test]
fn figures_are_read_from_cells() {
    let of = |cell| figure(cell).map(|median| (median.median, median.min, median.max));
    assert_eq!(of("27.9 (27.1–28.6)"), Some((27.9, 27.1, 28.6)));
    assert_eq!(of("1,234"), Some((1234.0, 1234.0, 1234.0)));
    assert_eq!(of("at least 900"), Some((900.0, 900.0, 900.0)));
    assert_eq!(of("–"), None);
    let text = "A lead.\n\n| a | b\\|c |\n|---|--:|\n| &lt;x> | 1 |\n\n| d |\n|---|\n";
    let tables = tables(text);
    assert_eq!(tables.len(), 2);
    assert_eq!(tables[0].lead, "A lead.");
    assert_eq!(tables[0].columns(["b|c", "a"]), Some(vec![["1", "<x>"]]));
    assert_eq!(tables[0].columns(["e"]), None);
    assert_eq!(tables[1].columns(["d"]), Some(Vec::new()));
}

#[test]
fn committed_charts_show_the_committed_tables() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = [
        ("results", 12),
        ("fleet-results", 3),
        ("hard-results", 1),
        ("probe-results", 1),
    ];
    for (page, least) in pages {
        let count = check_charts(&docs, page);
        assert!(count >= least, "{page}: only {count} sections have a chart");
    }
}

/// Compares the charts of `page` with its tables, or draws them again. Returns their number.
fn check_charts(docs: &Path, stem: &str) -> usize {
    let page = fs::read_to_string(docs.join(format!("{stem}.md"))).unwrap();
    let mut shown = page.clone();
    let is_update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut count = 0;
    for section in page.split("<!-- ").skip(1) {
        let Some((name, rest)) = section.split_once(" begin: made by ") else {
            continue;
        };
        let Some(chart) = chart(name, rest) else {
            continue;
        };
        count += 1;
        let file = docs.join(format!("{stem}-{name}.svg"));
        let link = format!("]({})", file.file_name().unwrap().display());
        if is_update {
            fs::write(&file, &chart.svg).unwrap();
            if !page.contains(&link) {
                shown = with_link(&shown, name, &format!("![{}{link}", chart.title));
            }
        }
        assert!(shown.contains(&link), "docs/{stem}.md: no {link}: {UPDATE}");
        let kept = fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == chart.svg, "docs/{stem}-{name}.svg: {UPDATE}");
    }
    if shown != page {
        fs::write(docs.join(format!("{stem}.md")), shown).unwrap();
    }
    count
}

/// The page with the link to a section's chart below the line that says when and where it was measured.
fn with_link(page: &str, section: &str, link: &str) -> String {
    let (before, after) = page.split_once(&format!("<!-- {section} begin: ")).unwrap();
    let place = after.find("\n\nMeasured on ").unwrap() + 2;
    let end = place + after[place..].find("\n\n").unwrap() + 2;
    let (head, tail) = after.split_at(end);
    format!("{before}<!-- {section} begin: {head}{link}\n\n{tail}")
}

const UPDATE: &str = "UPDATE_DOCS=1 cargo test -p weir-report --lib";

#[test]
fn the_readme_and_the_summary_quote_the_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let page = fs::read_to_string(root.join("docs/results.md")).unwrap();
    let relays = |profile, name| column(&page, "relay-limits", ("profile", profile), name);
    let ages = |strategy| column(&page, "live-lab", ("strategy", strategy), "age");
    let loads = |profile| -> Vec<String> {
        let loads = relays(profile, "largest load");
        let number = |load: &String| load.replace(" subscribers", "");
        loads.iter().map(number).collect()
    };
    let (audio, video) = (loads("audio.ini"), loads("audio-video.ini"));
    let costs = relays("audio.ini", "CPU µs/object");
    let memory = relays("audio.ini", "KiB/session");
    let memory: Vec<String> = memory
        .iter()
        .map(|cell| format!("{:.0}", number(cell).unwrap()))
        .collect();
    let costs_of_servers = column(&page, "http3-servers", ("", ""), "µs per request");
    let best = ours_and_the_best_other(&page, &costs_of_servers);
    let slowest = ["skip", "weir"].map(|strategy| {
        // For each link there is a row with each controller, and 500k is the first.
        let mut ages = ages(strategy);
        ages.truncate(2);
        ages
    });
    let slowest = slowest.concat();
    let ranges = ["skip", "weir"]
        .map(|strategy| ends(ages(strategy)))
        .concat();
    for (text, begin, end, figures) in [
        (&readme, "| Audio subscribers", " |\n", audio.clone()),
        (&readme, "| Audio and video", " |\n", video.clone()),
        (
            &readme,
            "| Relay CPU per object",
            " |\n",
            [costs.clone(), memory].concat(),
        ),
        (&readme, "| Server CPU per HTTP/3", " |\n", best),
        (&readme, "| Age of the picture", " |\n", slowest),
        (
            &page,
            "On 70 % of one core",
            "\n\n",
            [audio, video, costs].concat(),
        ),
        (
            &page,
            "CPU time of the server per response",
            "\n\n",
            costs_of_servers,
        ),
        (&page, "On six emulated links", "\n\n", ranges),
    ] {
        let (_, found) = text.split_once(begin).unwrap_or_else(|| panic!("{begin}"));
        let (found, _) = found.split_once(end).unwrap();
        let words = found.split([' ', '*', ',', ';', '\n']);
        let words: Vec<&str> = words.map(|word| word.trim_end_matches('.')).collect();
        for figure in figures {
            assert!(
                words.contains(&&*figure),
                "{begin}{found}: {figure} is missing"
            );
        }
    }
}

/// The costs of our HTTP/3 server and of the best other one. The table begins with the lowest cost.
fn ours_and_the_best_other(page: &str, costs: &[String]) -> Vec<String> {
    let names = column(page, "http3-servers", ("", ""), "server");
    let ours = names.iter().position(|name| name.starts_with("weir"));
    let ours = ours.expect("our server was measured");
    [ours, usize::from(ours == 0)]
        .map(|row| costs[row].clone())
        .to_vec()
}

/// The medians of the column `name` of a section's first table, in rows with a value in a column, or in all rows.
fn column(page: &str, section: &str, (of, value): (&str, &str), name: &str) -> Vec<String> {
    let (_, section) = page.split_once(&format!("<!-- {section} begin")).unwrap();
    let of = if of.is_empty() { name } else { of };
    // Other tables may stand before it, such as that of the testbed.
    let tables = tables(section);
    let rows = tables.iter().find_map(|table| table.columns([of, name]));
    let rows = rows.unwrap();
    let rows = rows
        .iter()
        .filter(|row| value.is_empty() || row[0] == value);
    rows.map(|row| row[1].split(" (").next().unwrap().to_owned())
        .collect()
}

/// The smallest and the largest of some figures.
fn ends(mut figures: Vec<String>) -> Vec<String> {
    figures.sort_by(|one, other| number(one).unwrap().total_cmp(&number(other).unwrap()));
    vec![figures.remove(0), figures.pop().unwrap()]
}
