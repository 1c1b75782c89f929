//! The example server under load, stopped with a signal: no accepted request is lost, and new ones are turned away.

#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The example, which a plain `cargo test` has built already, next to the tests.
fn server() -> PathBuf {
    let here = std::env::current_exe().expect("a test knows where it is");
    let profile = here.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/TEST");
    let path = profile.join("examples/server");
    if !path.exists() {
        let target = profile.parent().expect("target/PROFILE");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--example", "server", "--target-dir"]).arg(target);
        assert!(build.status().expect("cargo").success());
    }
    path
}

#[test]
fn a_server_that_is_stopped_finishes_what_it_began() {
    let mut server = Command::new(server()).args(["--work", "30"]).stdout(Stdio::piped()).spawn().expect("the example");
    let mut output = BufReader::new(server.stdout.take().expect("piped")).lines();
    let mut line = || output.next().expect("a line").expect("text");
    let first = line();
    let address = first.strip_prefix("listening on ").expect("the address comes first");
    let url = format!("http://{address}/work");

    let (done, refused, lost) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let stopping = AtomicBool::new(false);
    let report = thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                // A new connection for each request, so that one that the server never accepted is told from one that it lost.
                let agent: ureq::Agent = ureq::Agent::config_builder()
                    .http_status_as_error(false)
                    .max_idle_connections(0)
                    .timeout_global(Some(Duration::from_secs(10)))
                    .build()
                    .into();
                let deadline = Instant::now() + Duration::from_secs(20);
                while Instant::now() < deadline {
                    match agent.get(&url).call() {
                        Ok(response) if response.status() == 200 => done.fetch_add(1, SeqCst),
                        Ok(response) if response.status() == 503 => refused.fetch_add(1, SeqCst),
                        Ok(response) => panic!("{}", response.status()),
                        // The port is closed when all is over, not before.
                        Err(_) if stopping.load(SeqCst) => return,
                        Err(_) => lost.fetch_add(1, SeqCst),
                    };
                }
            });
        }
        thread::sleep(Duration::from_millis(400));
        stopping.store(true, SeqCst);
        let pid = i32::try_from(server.id()).expect("a process id");
        // SAFETY: the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
        assert_eq!(line(), "no new requests");
        line()
    });
    assert!(server.wait().expect("it ends").success());
    let served: usize = report
        .strip_prefix("drained after ")
        .and_then(|rest| rest.strip_suffix(" requests"))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{report}"));
    assert_eq!(lost.load(SeqCst), 0);
    assert_eq!(done.load(SeqCst), served, "every request that was let in was answered");
    assert!(served > 0);
    println!("{served} served, {} turned away", refused.load(SeqCst));
}
