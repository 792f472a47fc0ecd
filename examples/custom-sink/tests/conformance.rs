//! The sink in the conformance suite, with a receiver whose behavior the suite controls.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use custom_sink::Frames;
use hapax::{event::EventId, sink::Sink};
use hapax_testkit::{
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

const TIMEOUT: Duration = Duration::from_secs(1);

sink_suite!(Receiver);

struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepts: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    mood: Option<Mood>,
    moods: HashMap<String, Mood>,
    arrivals: Vec<Arrival>,
}

impl SinkUnderTest for Receiver {
    async fn fresh() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let accepts = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            accepts: Some(accepts).into(),
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(Frames {
            address: self.address.to_string(),
            timeout: TIMEOUT,
        })
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        self.state.lock().unwrap().mood = Some(mood);
        let mut accepts = self.accepts.lock().await;
        if mood == Mood::Down {
            if let Some(task) = accepts.take() {
                task.abort();
                let _stopped = task.await;
            }
        } else if accepts.is_none() {
            let listener = TcpListener::bind(self.address).await.unwrap();
            *accepts = Some(tokio::spawn(accept(listener, Arc::clone(&self.state))));
        }
        true
    }

    async fn tell_about(&self, event: EventId, mood: Mood) -> bool {
        let mut state = self.state.lock().unwrap();
        state.moods.insert(event.to_string(), mood);
        true
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        self.state.lock().unwrap().arrivals.clone()
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(receive(stream, Arc::clone(&state)));
    }
}

/// Reads one frame and responds. A sender that leaves in the middle has not sent an event.
async fn receive(stream: TcpStream, state: Arc<Mutex<State>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    stream.read_line(&mut head).await?;
    let Some((id, length)) = head.trim_end().split_once(' ') else {
        return Ok(());
    };
    let mut payload = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut payload).await?;
    let response = {
        let mut state = state.lock().unwrap();
        let mood = state.moods.get(id).copied().or(state.mood);
        if matches!(mood, None | Some(Mood::Accept | Mood::Talk)) {
            state.arrivals.push(Arrival {
                id: id.to_owned(),
                payload: Some(payload.into()),
            });
        }
        match mood {
            None | Some(Mood::Accept) => "ok".to_owned(),
            Some(Mood::Talk) => format!("ok {}", "x".repeat(100_000)),
            Some(Mood::Fail | Mood::Down) => "later the receiver is busy".to_owned(),
            Some(Mood::Refuse) => "never such an event".to_owned(),
            Some(Mood::Gone) => "gone since yesterday".to_owned(),
            Some(Mood::Hang) => String::new(),
        }
    };
    if response.is_empty() {
        std::future::pending::<()>().await;
    }
    stream.write_all(format!("{response}\n").as_bytes()).await
}
