package rootfs

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
)

// SBOM is a bill of materials in the form of SPDX 2.3 (the parts of it that
// apply to an image). It lies beside the image as sbom.spdx.json.
type SBOM struct {
	Version           string             `json:"spdxVersion"`
	DataLicense       string             `json:"dataLicense"`
	ID                string             `json:"SPDXID"`
	Name              string             `json:"name"`
	Namespace         string             `json:"documentNamespace"`
	CreationInfo      SBOMCreation       `json:"creationInfo"`
	DocumentDescribes []string           `json:"documentDescribes"`
	Packages          []SBOMPackage      `json:"packages"`
	Relationships     []SBOMRelationship `json:"relationships"`
}

// SBOMCreation says when and by what an SBOM was made.
type SBOMCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// SBOMPackage is one entry: the image itself, a Debian package or an npm one.
type SBOMPackage struct {
	ID               string         `json:"SPDXID"`
	Name             string         `json:"name"`
	Version          string         `json:"versionInfo"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseComments  string         `json:"licenseComments,omitempty"`
	Copyright        string         `json:"copyrightText"`
	Checksums        []SBOMChecksum `json:"checksums,omitempty"`
	References       []SBOMRef      `json:"externalRefs,omitempty"`
}

// SBOMChecksum is a digest in hexadecimal digits.
type SBOMChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// SBOMRef names a package in another system, here by its package URL.
type SBOMRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// SBOMRelationship ties two entries together.
type SBOMRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const noAssertion = "NOASSERTION"

// SBOM derives the bill of materials from the manifest. The same manifest gives
// the same bill.
func (m Manifest) SBOM() SBOM {
	image := SBOMPackage{
		ID: "SPDXRef-image", Name: "media-sandbox-image", Version: m.RecipeDigest[:12],
		DownloadLocation: noAssertion, LicenseDeclared: noAssertion, LicenseConcluded: noAssertion, Copyright: noAssertion,
		Checksums: []SBOMChecksum{{"SHA256", m.Image.SHA256}},
	}
	bill := SBOM{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "media-sandbox-image-" + m.RecipeDigest[:12],
		Namespace: "urn:media-sandbox:image:" + m.Image.SHA256,
		CreationInfo: SBOMCreation{
			Created:  time.Unix(m.Mtime, 0).UTC().Format(time.RFC3339),
			Creators: []string{fmt.Sprintf("Tool: sandboxctl-image-build-%d", m.BuilderVersion)},
		},
		DocumentDescribes: []string{image.ID},
		Packages:          []SBOMPackage{image},
	}
	for _, p := range m.Packages {
		bill.add(debianEntry(p, m.Suite))
	}
	for _, module := range m.Modules {
		bill.add(npmEntry(module))
	}
	return bill
}

func (b *SBOM) add(p SBOMPackage) {
	b.Packages = append(b.Packages, p)
	b.Relationships = append(b.Relationships, SBOMRelationship{"SPDXRef-image", "CONTAINS", p.ID})
}

func debianEntry(p Package, suite string) SBOMPackage {
	purl := "pkg:deb/debian/" + url.PathEscape(p.Name) + "@" + url.QueryEscape(p.Version) +
		"?arch=" + p.Architecture + "&distro=" + suite
	entry := newEntry("deb-"+p.Name+"-"+p.Architecture, p.Name, p.Version, purl)
	if len(p.Licenses) > 0 {
		entry.LicenseComments = "named in debian/copyright: " + strings.Join(p.Licenses, ", ")
	}
	return entry
}

func npmEntry(m Module) SBOMPackage {
	scope, name, scoped := strings.Cut(m.Name, "/")
	purl := "pkg:npm/" + url.PathEscape(m.Name)
	if scoped {
		purl = "pkg:npm/" + url.QueryEscape(scope) + "/" + url.PathEscape(name)
	}
	entry := newEntry("npm-"+m.Name+"-"+m.Version, m.Name, m.Version, purl+"@"+url.QueryEscape(m.Version))
	if spdxExpression.MatchString(m.License) {
		entry.LicenseDeclared = m.License
	}
	if sum, ok := strings.CutPrefix(m.Integrity, "sha512-"); ok {
		if raw, err := base64.StdEncoding.DecodeString(sum); err == nil {
			entry.Checksums = []SBOMChecksum{{"SHA512", hex.EncodeToString(raw)}}
		}
	}
	return entry
}

// spdxExpression is what npm's licence field looks like when it is one of
// SPDX's, not free text.
var spdxExpression = regexp.MustCompile(`^\(?[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*\)?$`)

// notInID are the characters that an SPDX identifier may not have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func newEntry(id, name, version, purl string) SBOMPackage {
	return SBOMPackage{
		ID: "SPDXRef-" + notInID.ReplaceAllString(id, "-"), Name: name, Version: version,
		DownloadLocation: noAssertion, LicenseDeclared: noAssertion, LicenseConcluded: noAssertion, Copyright: noAssertion,
		References: []SBOMRef{{"PACKAGE-MANAGER", "purl", purl}},
	}
}

func (b SBOM) write(path string) error {
	data, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	return syncFile(path)
}
