//! Places for labels beside the points of a plot.

/// A place, or the size of something, across and down.
type Place = (f64, f64);

/// Two corners: left and top, right and bottom.
type Area = (Place, Place);

/// Returns the left end of the baseline of each label, in the order of `points`.
///
/// A label stands beside its point. Of the free places, the first one in [`candidates`] is taken; a place is free if it lies
/// in `room` and covers no point, no earlier label and no line of `paths`. If none is free, the least covered one is taken.
pub(super) fn beside(points: &[(Place, &str)], paths: &[Vec<Place>], room: Area) -> Vec<Place> {
    let at_points = points.iter().map(|(point, _)| *point);
    let on_paths = paths.iter().flat_map(|path| {
        let ends = path.iter().copied();
        ends.chain(path.windows(2).flat_map(|ends| between(ends[0], ends[1])))
    });
    let marks: Vec<Place> = at_points.chain(on_paths).collect();
    let mut taken: Vec<Area> = Vec::new();
    let mut places = Vec::new();
    for (point, text) in points {
        let cost = |place: &Place| {
            let area = area(*place, text);
            let covered = marks.iter().filter(|mark| is_within(**mark, grown(area)));
            let crossed = taken.iter().filter(|other| overlap(area, **other));
            let outside = !(is_within(area.0, room) && is_within(area.1, room));
            covered.count() + 100 * crossed.count() + 1000 * usize::from(outside)
        };
        let candidates = candidates(*point, width(text));
        let place = candidates.into_iter().min_by_key(cost);
        let place = place.unwrap_or(*point);
        taken.push(area(place, text));
        places.push(place);
    }
    places
}

/// Right, left, above, below, and the corners; near ones first.
fn candidates((x, y): Place, wide: f64) -> Vec<Place> {
    let mut all = Vec::new();
    for gap in [11.0, 18.0, 26.0] {
        let (right, left, middle) = (x + gap, x - gap - wide, x - wide / 2.0);
        let (level, above, below) = (y + 4.5, y - gap + 1.0, y + gap + 9.0);
        all.extend([
            (right, level),
            (left, level),
            (middle, above),
            (middle, below),
        ]);
        let (right, left) = (x + gap / 2.0, x - gap / 2.0 - wide);
        all.extend([(right, above), (right, below), (left, above), (left, below)]);
    }
    all
}

/// Places on the line between two others, so near to each other that no label fits between them.
fn between(from: Place, to: Place) -> impl Iterator<Item = Place> {
    (1..STEPS).map(move |step| {
        let share = f64::from(step) / f64::from(STEPS);
        (
            from.0 + (to.0 - from.0) * share,
            from.1 + (to.1 - from.1) * share,
        )
    })
}

fn area((left, baseline): Place, text: &str) -> Area {
    (
        (left, baseline - HIGH),
        (left + width(text), baseline + 3.0),
    )
}

/// The box with room for half a symbol around it.
fn grown(((left, top), (right, bottom)): Area) -> Area {
    ((left - 3.0, top - 3.0), (right + 3.0, bottom + 3.0))
}

fn is_within((x, y): Place, ((left, top), (right, bottom)): Area) -> bool {
    (left..=right).contains(&x) && (top..=bottom).contains(&y)
}

fn overlap(one: Area, other: Area) -> bool {
    one.0.0 < other.1.0 && other.0.0 < one.1.0 && one.0.1 < other.1.1 && other.0.1 < one.1.1
}

/// About the width of `text` at 13 px.
fn width(text: &str) -> f64 {
    let letters = text.chars().map(|letter| match letter {
        ' ' | ',' | '.' | 'I' | 'i' | 'l' | 't' => 4.5,
        'A'..='Z' | 'm' | 'w' | '_' => 9.4,
        _ => 7.6,
    });
    letters.sum()
}

const HIGH: f64 = 11.0;
/// Parts of a line.
const STEPS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cover_neither_each_other_nor_points_and_stay_inside() {
        let points = [
            ((100.0, 50.0), "CASCADE"),
            ((104.0, 55.0), "SPIKE"),
            ((195.0, 50.0), "500k"),
        ];
        let room = ((0.0, 0.0), (200.0, 100.0));
        let path = vec![(100.0, 50.0), (150.0, 50.0)];
        let places = beside(&points, std::slice::from_ref(&path), room);
        let areas: Vec<Area> = places
            .iter()
            .zip(points)
            .map(|(place, (_, text))| area(*place, text))
            .collect();
        for (number, one) in areas.iter().enumerate() {
            assert!(is_within(one.0, room) && is_within(one.1, room), "{one:?}");
            assert!(points.iter().all(|(point, _)| !is_within(*point, *one)));
            assert!(between(path[0], path[1]).all(|place| !is_within(place, *one)));
            let mut others = areas.iter().enumerate();
            assert!(others.all(|(other, area)| other == number || !overlap(*one, *area)));
        }
    }
}
