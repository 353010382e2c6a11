//! The publisher: announces a namespace and serves one track.

use std::{sync::Arc, time::Duration};

use anyhow::{bail, ensure};
use moqtail::{
    model::{
        common::{location::Location, reason_phrase::ReasonPhrase, tuple::Tuple},
        control::{
            constant::PublishDoneStatusCode, control_message::ControlMessage,
            publish_done::PublishDone, publish_namespace::PublishNamespace,
            request_error::RequestError, subscribe_ok::SubscribeOk,
        },
        data::{
            constant::{ObjectForwardingPreference, ObjectStatus},
            object::Object,
            subgroup_header::SubgroupHeader,
        },
        error::RequestErrorCode,
    },
    transport::{
        connection::TransportConnection,
        control_stream_handler::ControlStreamHandler,
        data_stream_handler::{HeaderInfo, SendDataStream},
    },
};
use tokio::sync::Mutex;

use crate::{
    GROUPS, OBJECTS, TRACK, payload,
    session::{Session, ended},
};

const ALIAS: u64 = 900;
const PRIORITY: u8 = 20;
const GROUP_TIME: Duration = Duration::from_millis(250);

/// Publishes until the relay has closed the session.
pub(crate) async fn run(url: &str, namespace: &str) -> anyhow::Result<()> {
    let mut session = Session::connect(url).await?;
    let id = session.request_id();
    let request = PublishNamespace::new(id, Tuple::from_utf8_path(namespace), &[]);
    let (_announcement, answer) = session
        .request(ControlMessage::PublishNamespace(Box::new(request)))
        .await?;
    ensure!(
        matches!(answer, ControlMessage::RequestOk(_)),
        "PUBLISH_NAMESPACE is answered by {answer:?}"
    );
    println!("announced");
    while let Ok((send, receive)) = session.connection.accept_bi().await {
        let stream = ControlStreamHandler::new(send, receive);
        let connection = session.connection.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(&connection, stream).await {
                eprintln!("error: {error:#}");
            }
        });
    }
    Ok(())
}

/// Answers a request: a subscription with the whole track. What has gone by is fetched from the relay's cache, so a FETCH is
/// refused.
async fn serve(
    connection: &TransportConnection,
    mut stream: ControlStreamHandler,
) -> anyhow::Result<()> {
    match stream.next_message().await.map_err(ended)? {
        ControlMessage::Subscribe(subscribe) => {
            ensure!(
                subscribe.track_name.as_str() == TRACK,
                "another track: {subscribe:?}"
            );
            let ok = SubscribeOk::new(ALIAS, Vec::new(), Vec::new());
            stream.send_impl(&ok).await.map_err(ended)?;
            for group in GROUPS {
                send_group(connection, group).await?;
                tokio::time::sleep(GROUP_TIME).await;
            }
            let count = GROUPS.end - GROUPS.start;
            let reason = ReasonPhrase::try_new(String::new())?;
            let done = PublishDone::new(PublishDoneStatusCode::TrackEnded, count, reason);
            stream.send_impl(&done).await.map_err(ended)?;
            stream.finish().await;
            Ok(())
        }
        ControlMessage::Fetch(_) => {
            let reason = ReasonPhrase::try_new("the relay has every object".to_owned())?;
            let error = RequestError::new(RequestErrorCode::NotSupported, 0, reason);
            stream.send_impl(&error).await.map_err(ended)?;
            stream.finish().await;
            Ok(())
        }
        other => bail!("the relay asks for {other:?}"),
    }
}

async fn send_group(connection: &TransportConnection, group: u64) -> anyhow::Result<()> {
    let send = Arc::new(Mutex::new(connection.open_uni().await?));
    let header = SubgroupHeader::new_fixed_zero_id(ALIAS, group, Some(PRIORITY), false, true, true);
    let mut stream = SendDataStream::new(send, HeaderInfo::Subgroup { header }).await?;
    let mut previous = None;
    for id in OBJECTS {
        let object = Object {
            track_alias: ALIAS,
            location: Location::new(group, id),
            publisher_priority: PRIORITY,
            forwarding_preference: ObjectForwardingPreference::Subgroup,
            subgroup_id: Some(0),
            status: ObjectStatus::Normal,
            properties: None,
            payload: Some(payload(group, id)),
        };
        stream.send_object(&object, previous).await?;
        previous = Some(id);
    }
    stream.finish().await?;
    Ok(())
}
