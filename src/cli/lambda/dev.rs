//! `surus lambda dev`: emulates a function's HTTP trigger, queue, schedule and Invoke API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::emulated::Options;
use crate::cli::stdout;
use crate::cli::stop_signals::StopSignals;
use crate::emulator::Emulator;
use crate::emulator::http::{BinaryMediaTypes, Gateway, HttpService, invoke_api};
use crate::emulator::schedule::EmulatedSchedule;
use crate::emulator::sqs::{Mapping, Poller};
use crate::observe::log;
use crate::observe::reopen::{Logs, SiteLogs};
use crate::units::Time;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the application
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Address to listen on for HTTP
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Service to emulate for HTTP requests: url, http, rest, alb or alb-multi
    #[arg(long, value_name = "NAME", default_value = "url")]
    service: HttpService,
    /// The REST API's binaryMediaTypes: `*/*`, or types separated by commas [default: all bodies
    /// are text]
    #[arg(long, value_name = "TYPES")]
    binary_media_types: Option<BinaryMediaTypes>,
    /// Stream responses (InvokeMode: RESPONSE_STREAM); with url and rest
    #[arg(long)]
    stream: bool,
    /// Address for SDKs that invoke the function (AWS_ENDPOINT_URL_LAMBDA)
    #[arg(long, value_name = "ADDR")]
    api: Option<SocketAddr>,
    /// Maximum number of execution environments; each handles one event at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    environments: usize,
    /// URL of a queue of a local SQS, such as http://127.0.0.1:9324/000000000000/jobs
    #[arg(long, value_name = "URL")]
    sqs: Option<String>,
    /// Maximum number of messages in a batch
    #[arg(long, value_name = "N", default_value_t = 10, requires = "sqs")]
    batch: usize,
    /// How long to wait for a batch to fill
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "sqs")]
    window: Time,
    /// Ignore batchItemFailures, as without ReportBatchItemFailures: any response is a success of
    /// the whole batch
    #[arg(long, requires = "sqs")]
    whole_batches: bool,
    /// Send the event in a file at an interval, as in 1m=event.json; may be repeated
    #[arg(long, value_name = "TIME=FILE")]
    every: Vec<EmulatedSchedule>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.binary_media_types.is_some() && args.service != HttpService::Rest {
        bail!("--binary-media-types: only a REST API has them; add --service rest or remove this");
    }
    let mut function = args.options.function(&args.dir)?;
    function.environments = args.environments.max(1);
    // For X-Amz-Log-Result.
    function.keeps_log = args.api.is_some();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut usr1 = signal(SignalKind::user_defined1())?;
        let mut usr2 = signal(SignalKind::user_defined2())?;
        let logs = Logs::remember(SiteLogs::default());
        let listener = TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {} (--listen)", args.listen))?;
        let address = listener.local_addr()?;
        let api = match args.api {
            Some(address) => {
                let api = TcpListener::bind(address).await;
                Some(api.with_context(|| format!("cannot listen on {address} (--api)"))?)
            }
            None => None,
        };
        let emulator = Emulator::start(function).await?;
        let tell: Arc<dyn Fn(&str) + Send + Sync> =
            Arc::new(|line| log::print(format_args!("surus: {line}\n")));
        let mut sources = JoinSet::new();
        if let Some(queue) = args.sqs {
            let mapping = Mapping {
                queue,
                batch: args.batch,
                window: args.window.0,
                reports_failures: !args.whole_batches,
                pollers: args.environments.max(1),
            };
            let poller = Poller::new(emulator.clone(), mapping, tell.clone()).await?;
            stdout::announce(format_args!("polling the {poller}"));
            sources.spawn(poller.run());
        }
        for schedule in args.every {
            sources.spawn(schedule.run(emulator.clone(), tell.clone()));
        }
        let mut gateway = Gateway::new(emulator.clone(), args.service, args.stream);
        gateway.binary_media_types = args.binary_media_types.unwrap_or_default();
        sources.spawn(gateway.serve(listener));
        if let Some(api) = api {
            stdout::announce(format_args!(
                "invoke by {}",
                invoke_api::url(api.local_addr()?)
            ));
            sources.spawn(invoke_api::serve(api, emulator.clone()));
        }
        stdout::announce(format_args!("listening on http://{address}"));
        loop {
            tokio::select! {
                () = stop.recv() => break,
                // The terminal has closed.
                _ = hangup.recv() => break,
                _ = usr1.recv() => {
                    if let Err(error) = logs.reopen() {
                        tell(&format!("cannot reopen the logs: {error}"));
                    }
                }
                _ = usr2.recv() => {
                    let (emulator, tell) = (emulator.clone(), tell.clone());
                    tokio::spawn(async move {
                        match emulator.renew().await {
                            Ok(()) => tell("the function starts again from its files"),
                            Err(error) => tell(&format!("{error:#}")),
                        }
                    });
                }
            }
        }
        let ended = async {
            sources.shutdown().await;
            emulator.stop().await;
        };
        tokio::select! {
            () = ended => {}
            () = stop.recv() => {}
        }
        Ok(())
    });
    runtime.shutdown_background();
    served
}
