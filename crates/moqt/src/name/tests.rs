use super::*;

fn namespace(fields: &[&str]) -> Namespace {
    Namespace::new(fields).expect("a namespace")
}

#[test]
fn a_namespace_has_at_most_32_fields() {
    assert_eq!(
        Namespace::new(["f"; 32]).expect("32 fields").fields_len(),
        32
    );
    assert_eq!(Namespace::new(["f"; 33]), Err(NameError::TooManyFields));
}

#[test]
fn a_namespace_has_at_most_4096_bytes() {
    let most = Namespace::new([vec![1; 4000], vec![2; 96]]).expect("4096 bytes");
    assert_eq!(most.bytes_len(), 4096);
    assert_eq!(
        Namespace::new([vec![1; 4000], vec![2; 97]]),
        Err(NameError::TooLong)
    );
    assert_eq!(Namespace::new([vec![1; 70_000]]), Err(NameError::TooLong));
}

#[test]
fn a_namespace_has_no_empty_field() {
    assert_eq!(Namespace::new(["a", ""]), Err(NameError::EmptyField));
}

#[test]
fn a_full_name_has_at_most_4096_bytes() {
    let whole = Namespace::new([vec![1; 4000]]).expect("4000 bytes");
    let name = |len| TrackName::new(vec![2; len]).expect("a name");
    assert!(FullTrackName::new(whole.clone(), name(96)).is_ok());
    assert_eq!(FullTrackName::new(whole, name(97)), Err(NameError::TooLong));
    assert!(TrackName::new(vec![2; 4096]).is_ok());
    assert_eq!(TrackName::new(vec![2; 4097]), Err(NameError::TooLong));
}

#[test]
fn a_prefix_is_one_of_whole_fields() {
    let whole = namespace(&["ab", "c"]);
    assert!(whole.starts_with(&Namespace::EMPTY));
    assert!(whole.starts_with(&namespace(&["ab"])));
    assert!(whole.starts_with(&whole));
    assert!(!whole.starts_with(&namespace(&["a"])));
    assert!(!whole.starts_with(&namespace(&["ab", "c", "d"])));
    assert!(!namespace(&["ab", "cd"]).starts_with(&namespace(&["ab", "c"])));
}

#[test]
fn a_suffix_is_what_follows_the_prefix() {
    let whole = namespace(&["a", "b", "c"]);
    let suffix = whole.suffix(&namespace(&["a"])).expect("a prefix");
    assert_eq!(suffix, namespace(&["b", "c"]));
    assert_eq!((suffix.fields_len(), suffix.bytes_len()), (2, 2));
    assert_eq!(whole.suffix(&whole), Some(Namespace::EMPTY));
    assert_eq!(whole.suffix(&suffix), None);
}

#[test]
fn joining_keeps_the_limits() {
    let many = Namespace::new(["f"; 20]).expect("20 fields");
    assert_eq!(many.join(&many), Err(NameError::TooManyFields));
    assert_eq!(
        namespace(&["a"]).join(&namespace(&["b"])),
        Ok(namespace(&["a", "b"]))
    );
}

#[test]
fn the_order_keeps_namespaces_of_a_prefix_together() {
    let mut all = [
        namespace(&["b"]),
        namespace(&["a", "z"]),
        namespace(&["aa"]),
        namespace(&["a"]),
        namespace(&["a", "b", "c"]),
    ];
    all.sort();
    let of_a: Vec<_> = all
        .iter()
        .map(|name| name.starts_with(&namespace(&["a"])))
        .collect();
    assert_eq!(of_a, [true, true, true, false, false]);
    assert_eq!(all[0], namespace(&["a"]));
}

#[test]
fn the_next_namespace_beyond_a_prefix_is_behind_all_that_start_with_it_and_before_all_others() {
    let fields: [&[u8]; 9] = [
        &[0],
        &[0xff],
        &[0xff, 0],
        &[0, 0xff],
        &[0xff, 0xff],
        &[0xff; 127],
        &[0; 128],
        &[0xff; 2048],
        &[0xff; 4096],
    ];
    let mut all = vec![Namespace::EMPTY];
    for length in 0..3 {
        for place in 0..all.len() {
            let before = all[place].clone();
            if before.fields_len() == length {
                let longer = fields.map(|field| Namespace::new(before.fields().chain([field])));
                all.extend(longer.into_iter().flatten());
            }
        }
    }
    assert!(all.len() > 500);
    for prefix in &all {
        let next = prefix.next_beyond();
        for name in &all {
            let is_before = name.starts_with(prefix) || name < prefix;
            let is_beyond = next.as_ref().is_some_and(|next| name >= next);
            assert_ne!(is_before, is_beyond, "{name:?} and {prefix:?}");
        }
    }
    let next = |fields: &[&[u8]]| Namespace::new(fields).ok()?.next_beyond();
    assert_eq!(next(&[]), None);
    assert_eq!(next(&[&[0xff; 4096]]), None);
    assert_eq!(next(&[b"a", b"b"]), Some(namespace(&["a", "c"])));
    assert_eq!(
        next(&[b"a", &[0xff; 4095]]),
        Some(namespace(&["b"])),
        "a longer field has no room"
    );
}

#[test]
fn reserved_namespaces_are_told_apart() {
    assert!(namespace(&[".session", "x"]).is_session_level());
    assert!(namespace(&[".session", "x"]).is_reserved());
    assert!(namespace(&["."]).is_reserved());
    assert!(!namespace(&["."]).is_session_level());
    assert!(!namespace(&["a", ".b"]).is_reserved());
    assert!(!Namespace::EMPTY.is_reserved());
}

#[test]
fn non_minimal_lengths_make_the_same_name() {
    let wire = Bytes::from_static(&[0x80, 1, 0xc0, 0, 2, b'a', b'b']);
    let mut cursor = Cursor::new(&wire);
    assert_eq!(Namespace::decode(&mut cursor), Ok(namespace(&["ab"])));
    assert!(cursor.is_empty());
}
