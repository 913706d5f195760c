"""The bill of materials of an installation: CycloneDX 1.6 as JSON; test tools are optional."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as Piece
from cyclonedx.model.component import ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from edgewake.deploy.audit.locked import Component


def bill_of(
    components: Iterable[Component], licences: Mapping[Component, str], version: str
) -> str:
    """Its text. `version` is ours."""
    factory = LicenseFactory()
    bom = Bom()
    ours = Piece(
        name="edgewake",
        version=version,
        type=ComponentType.APPLICATION,
        licenses=[factory.make_from_string("Apache-2.0")],
        bom_ref="edgewake",
    )
    bom.metadata.component = ours
    pieces = []
    for one in components:
        purl = PackageURL(one.ecosystem, one.group or None, one.name, one.version)
        told = licences.get(one, "")
        pieces.append(
            Piece(
                name=one.name,
                group=one.group or None,
                version=one.version,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=str(purl),
                # A lock has a hash for each file of a release; a bill names one file, so it has
                # them where there is one.
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one.hashes[0])]
                if len(one.hashes) == 1
                else [],
                licenses=[factory.make_from_string(told)] if told else [],
                scope=ComponentScope.REQUIRED if one.is_shipped else ComponentScope.EXCLUDED,
            )
        )
    for piece in pieces:
        bom.components.add(piece)
    bom.register_dependency(ours, pieces)
    return str(JsonV1Dot6(bom).output_as_string(indent=1))
