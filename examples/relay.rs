//! A UDP relay whose packets live in the pages of a pool.
//!
//! ```text
//! cargo run --release --example relay -- --seconds 10 --workers 2
//! ```
//!
//! One thread receives. It owns the `Allocator`, so a page for a packet costs it a few plain loads and stores. It hands
//! the pages to workers, who check the packets, send them on and drop the pages, through the pool's ring, back to the
//! receiver. If the workers cannot keep up, the receiver drops packets and recycles their pages straight into its cache.
//! The program sends itself the packets, and counts what comes out at the other end.
//!
//! At the end the pool is shut down while packets are under way: the receiver gets no more pages, the workers finish what
//! they have, and the drain waits for the last page. Then the books have to balance: every packet that was received was
//! relayed or dropped, no page is out, and all memory is back with the system. If not, the exit code is 1.

use clap::Parser;
use indicatif::ProgressBar;
use percpu_ref::page_pool::{AllocError, Allocator, Page, PagePool, Stats};
use percpu_ref::ptr_ring::{Full, Waiting};
use serde_json::json;
use std::error::Error;
use std::io::{ErrorKind, IsTerminal};
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Relay packets in pages of a pool, then shut down and check the books.
#[derive(Parser)]
struct Options {
    /// How long to relay
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Threads that relay
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// The most pages that the pool may have
    #[arg(long, default_value_t = 1024)]
    pages: usize,
    /// Print the books as JSON
    #[arg(long)]
    json: bool,
}

/// A packet: its number, the sum of the words after it, and those words.
const WORDS: usize = 100;
/// Room for a packet and for one that is not ours.
const PAGE: usize = 2048;

/// What happened to packets.
#[derive(Default)]
struct Books {
    sent: AtomicU64,
    received: AtomicU64,
    relayed: AtomicU64,
    /// Because the workers were behind.
    dropped: AtomicU64,
    /// That were not as they were sent.
    broken: AtomicU64,
    arrived: AtomicU64,
}

fn up(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// Writes packet number `n`.
fn write(packet: &mut [u8; (WORDS + 2) * 8], n: u64) {
    let (mut sum, mut word) = (0_u64, n);
    for bytes in packet[16..].chunks_exact_mut(8) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        sum = sum.wrapping_add(word);
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    packet[..8].copy_from_slice(&n.to_ne_bytes());
    packet[8..16].copy_from_slice(&sum.to_ne_bytes());
}

/// Whether a packet is as it was sent.
fn is_whole(packet: &[u8]) -> bool {
    let mut words = packet.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    let (Some(_), Some(sum)) = (words.next(), words.next()) else { return false };
    words.fold(0, u64::wrapping_add) == sum
}

/// A packet in its page: the length stands in the last bytes.
fn with_length(mut page: Page, len: usize) -> Page {
    page[PAGE - 2..].copy_from_slice(&(len as u16).to_ne_bytes());
    page
}

fn packet(page: &Page) -> &[u8] {
    let len = u16::from_ne_bytes([page[PAGE - 2], page[PAGE - 1]]);
    &page[..usize::from(len)]
}

fn socket() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    Ok(socket)
}

/// Nothing came within the time-out.
fn is_idle(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Sends packets until it is told to stop.
fn generate(to: SocketAddr, books: &Books, stop: &AtomicBool) -> std::io::Result<()> {
    let socket = socket()?;
    let mut packet = [0; (WORDS + 2) * 8];
    for n in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        write(&mut packet, n);
        // The loopback has no flow control: a pause now and then keeps most packets from being lost on the way.
        if n % 64 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        if socket.send_to(&packet, to).is_ok() {
            up(&books.sent);
        }
    }
    Ok(())
}

/// Receives until the pool has no more pages to give.
fn receive(from: &UdpSocket, mut local: Allocator, to: &Waiting<Page>, books: &Books) -> std::io::Result<()> {
    loop {
        let mut page = match local.alloc() {
            Ok(page) => page,
            Err(AllocError::Exhausted) => {
                // The workers have them all.
                thread::yield_now();
                continue;
            }
            Err(AllocError::ShutDown) => return Ok(()),
            Err(error) => return Err(std::io::Error::other(error)),
        };
        match from.recv(&mut page[..PAGE - 2]) {
            Ok(len) => {
                up(&books.received);
                if let Err(Full(page)) = to.try_produce(with_length(page, len)) {
                    up(&books.dropped);
                    local.recycle(page);
                }
            }
            Err(error) if is_idle(&error) => local.recycle(page),
            Err(error) => return Err(error),
        }
    }
}

/// Relays until the receiver is gone and nothing is left.
fn relay(from: &Waiting<Page>, to: SocketAddr, books: &Books, over: &AtomicBool) -> std::io::Result<()> {
    let socket = socket()?;
    loop {
        let Some(page) = from.consume_timeout(Duration::from_millis(20)) else {
            if over.load(Relaxed) && from.ring().is_empty() {
                return Ok(());
            }
            continue;
        };
        if is_whole(packet(&page)) {
            // A full socket buffer is the network's way to lose a packet.
            let _ = socket.send_to(packet(&page), to);
            up(&books.relayed);
        } else {
            up(&books.broken);
        }
        drop(page);
    }
}

/// Counts what arrives.
fn sink(at: &UdpSocket, books: &Books, over: &AtomicBool) -> std::io::Result<()> {
    let mut buffer = [0; PAGE];
    loop {
        match at.recv(&mut buffer) {
            Ok(len) if is_whole(&buffer[..len]) => up(&books.arrived),
            Ok(_) => up(&books.broken),
            Err(error) if is_idle(&error) && over.load(Relaxed) => return Ok(()),
            Err(error) if is_idle(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Shows what the pool does until the time is up.
fn watch(pool: &PagePool, books: &Books, time: Duration) {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let (begin, mut before) = (Instant::now(), 0);
    while begin.elapsed() < time {
        thread::sleep(Duration::from_millis(200).min(time));
        let (received, stats) = (books.received.load(Relaxed), pool.stats());
        bar.set_message(format!(
            "{:>7} packets/s, {:>4} pages in flight | fast {} refill {} slow {} | cached {} ring {} ring_full {}",
            (received - before) * 5,
            pool.in_flight(),
            stats.fast,
            stats.refill,
            stats.slow,
            stats.cached,
            stats.ring,
            stats.ring_full,
        ));
        bar.tick();
        before = received;
    }
    bar.finish_and_clear();
}

/// What is left at the end.
struct End {
    took: Duration,
    drained: bool,
    in_flight: usize,
    mapped: usize,
    stats: Stats,
}

fn run(options: &Options, books: &Books) -> Result<End, Box<dyn Error>> {
    let pool = PagePool::builder().name("relay").page_size(PAGE).max_pages(options.pages).build()?;
    let (input, output) = (socket()?, socket()?);
    let (entry, exit) = (input.local_addr()?, output.local_addr()?);
    let queue = Waiting::new(256)?;
    let (stop, received, relayed) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let local = pool.allocator();
    let end = thread::scope(|s| -> Result<End, Box<dyn Error>> {
        let generator = s.spawn(|| generate(entry, books, &stop));
        let receiver = s.spawn(|| receive(&input, local, &queue, books));
        let workers: Vec<_> =
            (0..options.workers.max(1)).map(|_| s.spawn(|| relay(&queue, exit, books, &received))).collect();
        let counter = s.spawn(|| sink(&output, books, &relayed));
        watch(&pool, books, Duration::from_secs(options.seconds));

        // Packets are still coming.
        let begin = Instant::now();
        let drain = pool.shutdown();
        let first = receiver.join().expect("the receiver does not panic");
        received.store(true, Relaxed);
        let drained = match drain.wait_timeout(Duration::from_secs(5)) {
            Ok(()) => true,
            Err(drain) => {
                eprintln!("{}", drain.outstanding());
                false
            }
        };
        let took = begin.elapsed();
        stop.store(true, Relaxed);
        let others = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        let results = others.collect::<std::io::Result<Vec<()>>>();
        relayed.store(true, Relaxed);
        generator.join().expect("the generator does not panic")?;
        counter.join().expect("the sink does not panic")?;
        first?;
        results?;
        Ok(End { took, drained, in_flight: pool.in_flight(), mapped: pool.mapped_bytes(), stats: pool.stats() })
    })?;
    Ok(end)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let books = Books::default();
    let end = match run(&options, &books) {
        Ok(end) => end,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let [sent, received, relayed, dropped, broken, arrived] =
        [&books.sent, &books.received, &books.relayed, &books.dropped, &books.broken, &books.arrived]
            .map(|count| count.load(Relaxed));
    let balanced = end.drained
        && received == relayed + dropped
        && (broken, end.in_flight, end.mapped) == (0, 0, 0)
        && received > 0
        && arrived <= relayed;
    if options.json {
        let report = json!({
            "sent": sent, "received": received, "relayed": relayed, "dropped": dropped, "broken": broken,
            "arrived": arrived, "drained": end.drained, "drained_in_us": end.took.as_micros() as u64,
            "in_flight": end.in_flight, "mapped_bytes": end.mapped, "balanced": balanced,
        });
        println!("{report:#}");
    } else {
        println!("{sent} packets sent, {received} received, {relayed} relayed, {dropped} dropped, {arrived} arrived");
        print!("{}", end.stats);
        println!(
            "drained in {:.1} ms; {} pages in flight, {} bytes mapped: the books {}",
            end.took.as_secs_f64() * 1e3,
            end.in_flight,
            end.mapped,
            if balanced { "balance" } else { "DO NOT BALANCE" },
        );
    }
    if balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
