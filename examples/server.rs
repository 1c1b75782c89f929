//! An HTTP server that loses no request when it is told to stop.
//!
//! ```text
//! cargo run --release --example server -- --port 8080
//! curl http://127.0.0.1:8080/work
//! ```
//!
//! What the requests use has an `Owner`; the router has only a `Weak` of it. A request upgrades that and holds the result
//! while it is served, which costs no shared cache line, however many are in flight. Ctrl-C shuts the owner down: from
//! then on upgrades fail and requests get 503, those in flight finish, and the drain, a future, gives the state back.
//! Only then does the server stop listening.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Parser;
use percpu_ref::{Owner, Shared, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Serve until Ctrl-C, then finish what was begun.
#[derive(Parser)]
struct Options {
    /// Where to listen on the loopback interface; 0 takes any free port
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// How long one request takes, in milliseconds
    #[arg(long, default_value_t = 20)]
    work: u64,
    /// How long to wait for requests in flight, in seconds
    #[arg(long, default_value_t = 30)]
    patience: u64,
}

/// What the requests use.
struct App {
    work: Duration,
    served: AtomicU64,
}

/// Lets a request in, with a handle that lives as long as it is served, or turns it away.
async fn admit(State(app): State<Weak<App>>, mut request: Request, next: Next) -> Response {
    let Some(app) = app.upgrade() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    };
    request.extensions_mut().insert(Shared::clone(&app));
    let response = next.run(request).await;
    app.served.fetch_add(1, Ordering::Relaxed);
    response
}

async fn work(request: Request) -> &'static str {
    if let Some(app) = request.extensions().get::<Shared<App>>() {
        tokio::time::sleep(app.work).await;
    }
    "done\n"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let app = Owner::new(App { work: Duration::from_millis(options.work), served: AtomicU64::new(0) });
    let door = Owner::downgrade(&app);
    let router = Router::new().route("/work", get(work)).layer(from_fn_with_state(door, admit));
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
    println!("listening on {}", listener.local_addr()?);

    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(async { server.await });

    tokio::signal::ctrl_c().await?;
    println!("no new requests");
    let mut drain = Owner::shutdown(app);
    // The drain is a plain future, so any runtime's timer goes with it; it can be polled on afterwards.
    match tokio::time::timeout(Duration::from_secs(options.patience), &mut drain).await {
        Ok(app) => println!("drained after {} requests", app.served.into_inner()),
        Err(_) => println!("not waiting any longer: {}", drain.outstanding()),
    }
    drop(stop);
    server.await??;
    Ok(())
}
