"""Randomized smoothing: Cohen's procedure and the exact sequential test."""

from gradreg.smoothing.certificates import Certificates as Certificates
from gradreg.smoothing.certificates import Settings as Settings
from gradreg.smoothing.certificates import merge as merge
from gradreg.smoothing.certify import certify as certify
from gradreg.smoothing.intervals import clopper_pearson as clopper_pearson
from gradreg.smoothing.intervals import clopper_pearson_lower as clopper_pearson_lower
from gradreg.smoothing.summary import CertifiedAccuracy as CertifiedAccuracy
from gradreg.smoothing.summary import Sweep as Sweep
from gradreg.smoothing.summary import average_certified_radius as average_certified_radius
from gradreg.smoothing.summary import certified_accuracy as certified_accuracy
from gradreg.smoothing.summary import sweep as sweep
