//! Much that is small and comes at once on the layer's own streams.

use super::*;

#[test]
fn the_layer_reads_much_on_its_streams_in_parts() {
    for stream in [REQUEST, CLIENT_CONTROL] {
        let mut pipe = Pipe::served();
        for _ in 0..100 {
            let mut piece = Vec::new();
            if stream == REQUEST {
                frame::encode_head(frame_type::DATA, 1000, &mut piece);
            }
            // Empty capsules, or empty frames, of an unknown type.
            piece.extend([0x21, 0].repeat(500));
            pipe.put(stream, piece);
        }
        if stream == REQUEST {
            pipe.put(stream, close_capsule(7, "bye"));
        } else {
            // A second SETTINGS frame.
            pipe.put(stream, vec![4, 0]);
        }
        let mut before = pipe.unread_len(stream);
        pipe.with(|layer, end| layer.handle_readable(end, stream));
        let mut calls = 1;
        while pipe.layer.has_unread() {
            let read = before - pipe.unread_len(stream);
            assert!((1..10).contains(&read), "{read} pieces at once");
            before -= read;
            pipe.with(|layer, end| layer.read_on(end));
            calls += 1;
        }
        assert!(calls > 10, "{calls}");
        assert_eq!(pipe.unread_len(stream), 0);
        let events = pipe.events();
        assert!(
            events.iter().any(|event| event.starts_with("lost")),
            "{events:?}"
        );
    }
}

#[test]
fn what_is_read_of_many_streams_at_once_is_limited_together() {
    let mut pair = Pipe::served();
    let streams: Vec<_> = (1..8).map(|number| StreamId(4 * number)).collect();
    for &stream in &streams {
        // The first frame of a request is of an unknown type.
        pair.bring(stream, &[0x21, 0]);
        for _ in 0..4 {
            pair.put(stream, [0x21, 0].repeat(500));
        }
    }
    for &stream in &streams {
        pair.with(|layer, end| layer.handle_readable(end, stream));
    }
    let unread = |pair: &Pipe| -> usize { streams.iter().map(|&it| pair.unread_len(it)).sum() };
    assert_eq!(unread(&pair), 4 * streams.len() - 5, "some 4 KiB were read");
    assert!(pair.layer.has_unread() && pair.layer.has_read_enough());
    while pair.with(|layer, end| layer.read_on(end)) {}
    assert_eq!(unread(&pair), 0);
    assert!(!pair.layer.has_read_enough());
}
