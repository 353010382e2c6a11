//! The commands in the README and the pages of `docs/`: each shell fence is run as it stands, unless the line before it says
//! `<!-- needs: … -->`.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use weir_net::clock;

use crate::process::Folder;

#[test]
fn the_commands_in_the_documents_work() {
    let mut problems = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        // Later fences of a page use files and variables of earlier ones.
        let folder = Folder::new("documents");
        prepare(&folder);
        for (line, script) in unmarked_fences(&text) {
            count += 1;
            if let Some(problem) = failure(&folder, &script) {
                problems.push(format!("{name}:{line}: {problem}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(count >= 8, "only {count} fences were found");
}

#[test]
fn a_fence_is_run_unless_it_is_marked() {
    let page =
        "```sh\na\nb\n```\n```text\nc\n```\n<!-- needs: a moon -->\n```sh\nd\n```\n```sh\ne\n```\n";
    let found = unmarked_fences(page);
    assert_eq!(found, [(2, "a\nb\n".to_owned()), (13, "e\n".to_owned())]);
}

#[test]
fn a_fence_that_fails_or_hangs_is_found() {
    let folder = Folder::new("fences");
    prepare(&folder);
    for (script, problem) in [
        ("weir --version", None),
        ("weir --no-such-flag", Some("exit status: 2")),
        ("false | true; cat none", Some("exit status: 1")),
        ("echo $not_set", Some("exit status: ")),
    ] {
        let found = failure(&folder, script);
        match problem {
            None => assert_eq!(found, None, "{script}"),
            Some(problem) => assert!(found.unwrap().contains(problem), "{script}"),
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The README and the pages of `docs/`.
fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .chain([root().join("README.md")])
        .collect();
    pages.sort();
    pages
}

/// Returns the scripts without a mark, each with the number of its first line.
fn unmarked_fences(page: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = page.lines().collect();
    let mut fences = Vec::new();
    for (index, _) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| **line == "```sh")
    {
        let is_marked = index > 0 && lines[index - 1].starts_with("<!-- needs: ");
        if !is_marked {
            let body = lines[index + 1..].iter().take_while(|line| **line != "```");
            let body: Vec<&str> = body.copied().collect();
            fences.push((index + 2, body.join("\n") + "\n"));
        }
    }
    fences
}

/// Puts into a folder what commands expect in the root of the repository, and the programs of [`PROGRAMS`].
fn prepare(folder: &Folder) {
    for name in ["profiles", "packaging", "vectors"] {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(root().join(name))
            .arg(folder.file(name))
            .status();
        assert!(copied.unwrap().success());
    }
    fs::create_dir(folder.file("bin")).unwrap();
    for (name, text) in PROGRAMS {
        let file = folder.write(&format!("bin/{name}"), text);
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_weir"), folder.file("bin/weir-program")).unwrap();
}

/// Runs a script in a folder, and ends the processes that remain. Returns the end of the output if the script failed or took
/// longer than [`TIME_MAX`].
fn failure(folder: &Folder, script: &str) -> Option<String> {
    let output = fs::File::create(folder.file("output")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = shell(script)
        .env("PATH", format!("{}:{path}", folder.file("bin")))
        .current_dir(folder.file("."))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .process_group(0)
        .spawn()
        .unwrap();
    let end = clock::now() + TIME_MAX;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.to_string(),
            None if clock::now() > end => break format!("still running after {TIME_MAX:?}"),
            None => std::thread::park_timeout(Duration::from_millis(20)),
        }
    };
    let group = format!("-{}", child.id());
    let mut kill = Command::new("kill");
    kill.args(["-s", "KILL", "--", &group]);
    // All processes may have ended.
    kill.stderr(Stdio::null()).status().unwrap();
    child.wait().unwrap();
    if status == "exit status: 0" {
        return None;
    }
    let said = fs::read(folder.file("output")).unwrap();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    Some(format!("{status}\n{script}{tail}"))
}

/// Returns a shell that stops at the first error. If the rights allow, the shell has a network namespace, because the ports in
/// documents are fixed, and a high priority, because commands in documents measure for a few seconds and fail without CPU time.
fn shell(script: &str) -> Command {
    const PRIVILEGED: [&str; 4] = ["-n", "-15", "unshare", "--net"];
    let mut test = Command::new("nice");
    test.args(PRIVILEGED)
        .args(["ip", "link", "set", "lo", "up"]);
    let is_allowed = test.stderr(Stdio::null()).status();
    let mut command;
    if is_allowed.is_ok_and(|status| status.success()) {
        command = Command::new("nice");
        command.args(PRIVILEGED);
        command.args(["bash", "-euo", "pipefail", "-c"]);
        command.arg(format!("ip link set lo up\n{script}"));
    } else {
        command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") {
            command.env_remove(name);
        }
    }
    command
}

/// Time limit of a script on a busy machine.
const TIME_MAX: Duration = Duration::from_mins(5);

/// Programs that come first in the scripts' `PATH`.
///
/// On a slow machine, `weir bench` may break the service level, and `sleep` is too short for a relay to start. So the verdict of a
/// broken level counts as success here, and `sleep` takes three times as long.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "weir",
        "\
#!/bin/bash
folder=$(dirname \"$0\")
case \"${1:-} ${2:-}\" in
    'bench compare' | 'bench find-max' | [!b]*) exec \"$folder/weir-program\" \"$@\" ;;
esac
code=0
said=$(\"$folder/weir-program\" \"$@\") || code=$?
echo \"$said\"
if [ $code = 1 ] && grep -qE '^(broken|invalid)' <<<\"$said\"; then
    exit 0
fi
exit $code
",
    ),
    ("sleep", "#!/bin/bash\nexec /bin/sleep $((3 * $1))\n"),
];
